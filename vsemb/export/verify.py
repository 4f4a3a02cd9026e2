"""Holding an exported model to its contract, as strangers run it.

That is without Keras, and without Python's TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.export.contract import (
    Contract,
    Golden,
    contract_path,
    hashes,
    interface,
    version_contract_path,
    written_shape,
)
from vsemb.export.isolated_checks import PROBES, ProbeError, decode, encode, run_probe
from vsemb.export.reference_outputs import Arrays, compare, part
from vsemb.export.versions import existing_versions

# Packages that must not be imported in a probe, see its name.
_ABSENT = {
    "TensorFlow without Keras": {"keras", "tf_keras", "vsemb"},
    "TensorFlow's C library": {"tensorflow", "keras", "tf_keras", "vsemb"},
}


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        check: what did it: a probe's name, or `files`, `contract`.
        signature: what was checked, "" where it is no signature.
        rows: golden rows that were compared.
        difference: the largest from a golden output, relative; None where none was found out.
        problem: what is wrong, None if nothing is.
    """

    check: str
    signature: str = ""
    rows: int = 0
    difference: float | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and `ok`."""
        return {**asdict(self), "ok": self.ok}


@dataclass(frozen=True)
class Verification:
    """What `verify_model` found.

    Attributes:
        path: the version's directory.
        contract: the contract's file.
        checks: in the order in which they were made.
    """

    path: Path
    contract: Path
    checks: list[Check]

    @property
    def failed(self) -> list[Check]:
        """The checks that found something wrong."""
        return [check for check in self.checks if not check.ok]

    def to_json(self) -> dict[str, Any]:
        """Returns all of it."""
        checks = [check.to_json() for check in self.checks]
        return {
            "path": str(self.path),
            "contract": str(self.contract),
            "ok": not self.failed,
            "checks": checks,
        }


def verify_model(
    base: str | os.PathLike[str],
    *,
    version: int | None = None,
    contract: str | os.PathLike[str] | None = None,
    timeout: float = 600,
    probes: Mapping[str, Path] = PROBES,
) -> Verification:
    """Runs a version's golden inputs in other processes and compares what they give with its contract.

    Each signature gets all golden rows at once, each row alone, and an empty batch.

    Args:
        base: the model's directory, e.g. `savedmodels/flickr8k`.
        version: its number; None for the newest.
        contract: its file; None for `contracts/NAME.json` where that is the version's, otherwise the copy
            inside the version.
        timeout: seconds that a probe may take.
        probes: name -> script.

    Raises:
        DataError: if there is no such version, or no readable contract. What the checks find is not raised.
        InvalidArgumentError: for a timeout that is not positive.

    Example:

        failed = verify_model("savedmodels/flickr8k").failed
    """
    if not timeout > 0:
        raise invalid_argument("timeout", timeout, "seconds > 0")
    directory = _version(Path(base), version)
    path, agreed, checks = _contract(Path(base), directory, contract)
    checks += [_files(agreed, directory)]
    for name, script in tqdm(probes.items(), desc="verify", unit="probe", disable=None, leave=False):
        checks += _probe(name, script, agreed, directory, timeout)
    return Verification(directory, path, checks)


def _version(base: Path, version: int | None) -> Path:
    numbers = existing_versions(base)
    if not numbers:
        raise DataError(f"No versions of a model at {base}; name the directory that holds them, NAME of NAME/1.")
    if version is None:
        version = numbers[-1]
    if version not in numbers:
        raise invalid_argument("version", version, f"one of {', '.join(map(str, numbers))}")
    # A leading zero is a directory of its own.
    return next(path for path in base.iterdir() if path.name.isdigit() and int(path.name) == version)


def _contract(base: Path, directory: Path, given: str | os.PathLike[str] | None) -> tuple[Path, Contract, list[Check]]:
    """Returns the contract to hold the version to, and a check that its copies are equal."""
    if given is not None:
        return Path(given), Contract.read(given), []
    outer, inner = contract_path(base), version_contract_path(directory)
    if not outer.is_file():
        return inner, Contract.read(inner), []
    agreed = Contract.read(outer)
    if agreed.model_version != int(directory.name):
        return inner, Contract.read(inner), []
    same = inner.is_file() and inner.read_bytes() == outer.read_bytes()
    problem = None if same else f"{outer} is not the copy inside the version, {inner}"
    return outer, agreed, [Check("contract", problem=problem)]


def _files(contract: Contract, directory: Path) -> Check:
    found = hashes(directory)
    other = sorted(name for name in {*found, *contract.sha256} if found.get(name) != contract.sha256.get(name))
    if not other:
        return Check("files")
    name = other[0]
    what = "is missing" if name not in found else "is not in" if name not in contract.sha256 else "differs from"
    return Check("files", problem=f"{name} {what}{'' if name not in found else ' the contract'}")


def _probe(name: str, script: Path, contract: Contract, directory: Path, timeout: float) -> list[Check]:
    runs = [(signature, rows) for signature in contract.golden for rows in _batches(contract, signature)]
    job = {
        "model": str(directory.absolute()),
        "runs": [{"signature": signature, "inputs": _encoded(contract, signature, rows)} for signature, rows in runs],
    }
    try:
        found = run_probe(script, job, timeout)
    except ProbeError as error:
        return [Check(name, problem=str(error))]
    imported = _ABSENT.get(name, set()) & set(found["modules"])
    if imported:
        return [Check(name, problem=f"imported {', '.join(sorted(imported))}")]
    results: dict[str, list[dict[str, Any]]] = {signature: [] for signature in contract.signatures}
    for (signature, _), result in zip(runs, found["results"], strict=True):
        results[signature].append(result)
    checks = []
    for signature, sides in contract.signatures.items():
        problem = _interface_problem(sides, found["signatures"].get(signature))
        if problem is not None:
            checks.append(Check(name, signature, problem=problem))
        elif signature in contract.golden:
            checks.append(_compared(name, signature, contract, results[signature]))
        else:
            checks.append(Check(name, signature, problem="has no golden rows in the contract"))
    extra = sorted(set(found["signatures"]) - set(contract.signatures))
    return checks + [Check(name, signature, problem="is not in the contract") for signature in extra]


def _batches(contract: Contract, signature: str) -> list[Arrays]:
    """Returns inputs: all rows, each row alone, none."""
    inputs = contract.golden[signature].inputs
    rows = len(next(iter(inputs.values())))
    none = {name: values[:0] for name, values in inputs.items()}
    return [inputs, *(part(inputs, row) for row in range(rows)), none]


def _encoded(contract: Contract, signature: str, inputs: Arrays) -> dict[str, Any]:
    specs = contract.signatures[signature]["inputs"]
    return {name: encode(values, specs[name]["dtype"]) for name, values in inputs.items()}


def _interface_problem(wanted: dict[str, Any], found: dict[str, Any] | None) -> str | None:
    if found is None:
        return "is missing"
    promised, offered = interface(wanted), interface(found)
    for name in sorted(promised.keys() | offered.keys()):
        if promised.get(name) != offered.get(name):
            sides = [
                "none" if spec is None else f"{spec[0]} {written_shape(spec[1])}"
                for spec in (offered.get(name), promised.get(name))
            ]
            return f"{name} is {sides[0]}, not {sides[1]}".replace("'", "")
    return None


def _compared(name: str, signature: str, contract: Contract, results: list[dict[str, Any]]) -> Check:
    golden: Golden = contract.golden[signature]
    rows = len(next(iter(golden.inputs.values())))
    what = ["all rows", *(f"row {row} alone" for row in range(rows)), "an empty batch"]
    wanted = [golden.outputs, *(part(golden.outputs, row) for row in range(rows))]
    wanted.append({key: values[:0] for key, values in golden.outputs.items()})
    largest = 0.0
    for place, result in enumerate(results):
        if "error" in result:
            reason = one_line(result["error"], 200)
            return Check(name, signature, rows, problem=f"{what[place]}: {reason}")
        got = {key: decode(values) for key, values in result["outputs"].items()}
        difference, problem = compare(wanted[place], got, contract.tolerance, golden.scale, golden.ties)
        largest = max(largest, difference)
        if problem:
            shown = float(largest) if np.isfinite(largest) else None
            return Check(name, signature, rows, shown, f"{what[place]}: {problem}")
    return Check(name, signature, rows, float(largest))
