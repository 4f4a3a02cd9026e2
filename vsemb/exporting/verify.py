"""Verification of an exported model against its contract, without Keras and without Python's TensorFlow."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.exporting.contract import Contract, contract_path, differences, hashes, version_contract_path
from vsemb.exporting.probe import decode, encode
from vsemb.exporting.reference_outputs import Arrays, Golden, compare
from vsemb.exporting.servable import PROBES, described_signatures, run_probe, signature_specs
from vsemb.exporting.signing import read_key, require_signature
from vsemb.exporting.versions import existing_versions
from vsemb.files import read_bytes
from vsemb.printing import table
from vsemb.results import Result

# Packages that a probe must not import.
_ABSENT = {
    "TensorFlow without Keras": {"keras", "tf_keras", "vsemb"},
    "TensorFlow's C library": {"tensorflow", "keras", "tf_keras", "vsemb"},
}


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes:
        check: name of the probe, or `files`, `contract`.
        signature: the checked signature; "" for other checks.
        rows: number of compared golden rows.
        difference: largest relative difference from a golden output; None if nothing was compared.
        problem: description of the failure; None if the check passed.
    """

    check: str
    signature: str = ""
    rows: int = 0
    difference: float | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the check passed."""
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        """Return the fields and `ok`."""
        return {**asdict(self), "ok": self.ok}


@dataclass(frozen=True, repr=False)
class Verification(Result):
    """Results of `verify_model`.

    Attributes:
        path: directory of the version.
        contract: file of the contract.
        checks: results, in order.
    """

    path: Path
    contract: Path
    checks: list[Check]

    @property
    def failed(self) -> list[Check]:
        """The failed checks."""
        return [check for check in self.checks if not check.ok]

    @property
    def failure(self) -> str | None:
        """The first failed check; None if all passed."""
        if not self.failed:
            return None
        first, more = self.failed[0], len(self.failed) - 1
        where = f"{first.check}: {first.signature}".rstrip()
        return f"{where} {first.problem}{f' ({more} more checks failed)' if more else ''}."

    def __str__(self) -> str:
        rows = []
        for each in self.checks:
            difference = "" if each.difference is None else f"{each.difference:.1e}"
            rows.append([each.check, each.signature, str(each.rows or ""), difference, "yes" if each.ok else "NO"])
        lines = table(["check", "signature", "rows", "difference", "ok"], rows, text=(0, 1, 4))
        following = "" if self.failed else f"\n\nnext  vsemb serve {shlex.quote(str(self.path.parent))}"
        return f"{self.path}, by {self.contract}\n\n{lines}{following}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
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
    key: str | os.PathLike[str] | None = None,
    timeout: float = 600,
    probes: Mapping[str, Path] = PROBES,
) -> Verification:
    """Run a version's golden inputs in other processes and compare the outputs with its contract.

    Each signature gets all golden rows at once, each row alone, and an empty batch.

    Args:
        base: the model's directory, e.g. `savedmodels/flickr8k`.
        version: version number; None for the newest.
        contract: file of the contract; None for `contracts/NAME.json` if it is this version's, else the copy inside
            the version.
        key: PEM file of a public key; the contract must be signed with its private key, see `vsemb.exporting.signing`.
            The model is opened only if the signature and the hashes of all files are correct.
        timeout: maximum seconds per probe, > 0.
        probes: name -> script.

    Raises:
        DataError: if the version or a readable contract is missing, or the signature or a signed file is wrong. Other
            failed checks are returned.
        InvalidArgumentError: for an unknown version.

    Example:

        failed = verify_model("savedmodels/flickr8k").failed
    """
    directory = _version(Path(base), version)
    path, agreed, checks = _contract(Path(base), directory, contract)
    files = _files(agreed, directory)
    checks += [files]
    if key is not None:
        require_signature(directory, path, read_key(key, private=False))
        if not files.ok:
            raise DataError(f"{directory} must hold the signed files: {files.problem}. Do not open this model.")
        checks += [Check("signature")]
    for name, script in progress(probes.items(), desc="verify", unit="probe", leave=False):
        checks += _probe(name, script, agreed, directory, timeout)
    return Verification(directory, path, checks)


def _version(base: Path, version: int | None) -> Path:
    numbers = existing_versions(base)
    if not numbers:
        raise DataError(f"No versions of a model at {base}. Pass the model's directory, NAME of NAME/1.")
    if version is None:
        version = numbers[-1]
    if version not in numbers:
        raise invalid_argument("version", version, f"one of {', '.join(map(str, numbers))}")
    # The name may have a leading zero.
    return next(path for path in base.iterdir() if path.name.isdigit() and int(path.name) == version)


def _contract(base: Path, directory: Path, given: str | os.PathLike[str] | None) -> tuple[Path, Contract, list[Check]]:
    """Return the contract of a version, and a check that its copies are equal."""
    if given is not None:
        return Path(given), Contract.read(given), []
    outer, inner = contract_path(base), version_contract_path(directory)
    agreed = Contract.read(outer if outer.is_file() else inner)
    if not outer.is_file() or agreed.model_version != int(directory.name):
        return inner, Contract.read(inner), []
    same = inner.is_file() and read_bytes(inner) == read_bytes(outer)
    problem = None if same else f"{outer} differs from the copy inside the version, {inner}"
    return outer, agreed, [Check("contract", problem=problem)]


def _files(contract: Contract, directory: Path) -> Check:
    digests = hashes(directory)
    for name in sorted({*digests, *contract.sha256}):
        if name not in digests:
            return Check("files", problem=f"{name} is missing")
        if digests[name] != contract.sha256.get(name):
            what = "differs from" if name in contract.sha256 else "is not in"
            return Check("files", problem=f"{name} {what} the contract")
    return Check("files")


def _probe(name: str, script: Path, contract: Contract, directory: Path, timeout: float) -> list[Check]:
    tried = [(signature, *one) for signature, golden in contract.golden.items() for one in _tries(golden)]
    runs = [
        {"signature": signature, "inputs": {key: encode(values) for key, values in inputs.items()}}
        for signature, _, inputs, _ in tried
    ]
    try:
        tensors = described_signatures(directory, lambda info: info.name)
        job = {"probe": name, "model": str(directory.absolute()), "tensors": tensors, "runs": runs}
        probed = run_probe(script, job, timeout)
    except DataError as error:
        return [Check(name, problem=str(error))]
    if imported := _ABSENT.get(name, set()) & set(probed["modules"]):
        return [Check(name, problem=f"imported {', '.join(sorted(imported))}")]
    offered, checks = signature_specs(directory), []
    for signature, sides in contract.signatures.items():
        if signature not in offered:
            checks.append(Check(name, signature, problem="is missing"))
        elif other := next(differences(sides, offered[signature]), None):
            checks.append(Check(name, signature, problem=f"{other[0]} is {other[2]} instead of {other[1]}"))
        elif signature not in contract.golden:
            checks.append(Check(name, signature, problem="has no golden rows in the contract"))
        else:
            answers = zip(tried, probed["results"], strict=True)
            own = [(what, outputs, answer) for (of, what, _, outputs), answer in answers if of == signature]
            checks.append(_compared(name, signature, contract, own))
    extra = sorted(set(offered) - set(contract.signatures))
    return checks + [Check(name, signature, problem="is not in the contract") for signature in extra]


def _tries(golden: Golden) -> list[tuple[str, Arrays, Arrays]]:
    """Return (name, inputs, outputs) of all rows, of each row alone, and of an empty batch."""
    count = len(next(iter(golden.inputs.values())))
    alone = {f"row {row} alone": slice(row, row + 1) for row in range(count)}
    rows = {"all rows": slice(None), **alone, "an empty batch": slice(0)}

    def chosen(values: Arrays, part: slice) -> Arrays:
        return {key: value[part] for key, value in values.items()}

    return [(name, chosen(golden.inputs, part), chosen(golden.outputs, part)) for name, part in rows.items()]


def _compared(
    name: str, signature: str, contract: Contract, answers: list[tuple[str, Arrays, dict[str, Any]]]
) -> Check:
    """Compare a probe's answers, (name, expected outputs, answer) each, with the contract."""
    golden, largest = contract.golden[signature], 0.0
    rows = len(answers) - 2
    for what, wanted, answer in answers:
        if "error" in answer:
            return Check(name, signature, rows, problem=f"{what}: {one_line(answer['error'], 200)}")
        got = {key: decode(values) for key, values in answer["outputs"].items()}
        difference, problem = compare(wanted, got, contract.tolerance, golden.scale, golden.ties)
        largest = max(largest, difference)
        if problem:
            shown = float(largest) if np.isfinite(largest) else None
            return Check(name, signature, rows, shown, f"{what}: {problem}")
    return Check(name, signature, rows, float(largest))
