"""The contract of an exported model: what it takes and gives, as a file that needs no TensorFlow to read.

One copy lies in the version, `NAME/N/assets.extra/contract.json`, published with it; the newest export's
also beside the models, `contracts/NAME.json`, where clients and reviewers look. `vsemb verify` holds a model
to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vsemb.errors import DataError
from vsemb.export.reference_outputs import Arrays, Tie, from_json, to_json
from vsemb.export.versions import CONTRACTS
from vsemb.files import read_json, replacing, sha256_file

FORMAT, VERSION = "vsemb-contract", 1

# A list of strings is written on one line if none is longer.
_SHORT = 40


@dataclass(frozen=True, eq=False)
class Golden:
    """One signature's golden rows.

    Attributes:
        inputs: by name.
        outputs: by name.
        scale: by output, the least that differences are relative to; 1 where it says nothing.
        ties: by output, which differences count for nothing.
    """

    inputs: Arrays
    outputs: Arrays
    scale: Mapping[str, float] = field(default_factory=dict)
    ties: Mapping[str, Tie] = field(default_factory=dict)


@dataclass(frozen=True)
class About:
    """What a model is, in sentences for its model card.

    Attributes:
        what: what it does.
        reading: how to read what it gives.
        made: what it makes, such as `embeddings`.
        invalid: what a row that cannot be read is answered by.
        limits: what bounds what it takes and gives.
        cannot: what it cannot do.
    """

    what: str = ""
    reading: str = ""
    made: str = "outputs"
    invalid: str = "zeros"
    limits: Sequence[str] = ()
    cannot: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Contract:
    """What a version of a model promises.

    Attributes:
        model: the name that it is served by.
        model_version: of the directory.
        fingerprint: of the run, its weights and recipe; None where it is not known.
        signatures: name -> inputs, outputs -> name -> `dtype` and `shape`, None for the batch and other
            sizes that are open.
        golden: by signature.
        tolerance: the largest difference from the golden outputs, relative to the largest entry of an
            output, or to the golden rows' scale where that is more.
        tolerance_reason: why so much.
        dim: size of an embedding; None where nothing is embedded.
        similarity: its class and constructor arguments; None where nothing is embedded.
        geometry: what all embeddings have in common; None where nothing is embedded.
        max_text_bytes: what is behind them is not read; None where no texts are taken.
        max_pixels: images of more are not valid; None where no images are taken.
        libraries: those beside TensorFlow that a server needs.
        versions: of vsemb and TensorFlow, as exported.
        sha256: of the files of the SavedModel.
        max_tokens: the words, or other subwords, of a text that are read; None where there is no limit.
        settings: numbers that only this kind of model has, such as the width of a beam search.
        instance: one row of `serving_default` as TensorFlow Serving's REST API takes it, to try the model with;
            `{"b64": FILE}` for the content of a file.
        about: what the model is, in sentences.
    """

    model: str
    model_version: int
    fingerprint: str | None
    signatures: dict[str, Any]
    golden: dict[str, Golden]
    tolerance: float
    tolerance_reason: str
    dim: int | None = None
    similarity: dict[str, Any] | None = None
    geometry: str | None = None
    max_text_bytes: int | None = None
    max_pixels: int | None = None
    libraries: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    instance: Any = None
    about: About = field(default_factory=About)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file."""
        plain = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "golden"}
        golden = {
            name: {
                "scale": dict(rows.scale),
                "ties": {output: list(tie) for output, tie in rows.ties.items()},
                "inputs": {key: to_json(values) for key, values in rows.inputs.items()},
                "outputs": {key: to_json(values) for key, values in rows.outputs.items()},
            }
            for name, rows in self.golden.items()
        }
        return {"format": FORMAT, "version": VERSION, **plain, "about": asdict(self.about), "golden": golden}

    @classmethod
    def from_json(cls, content: Any) -> Contract:
        """Rebuilds a contract.

        Raises:
            ValueError: for what is none.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        if content.get("version") != VERSION:
            raise ValueError(f"its version is {content.get('version')!r}, not {VERSION}")
        try:
            optional = {key.name for key in fields(cls) if (key.default, key.default_factory) != (MISSING, MISSING)}
            names = [key.name for key in fields(cls) if key.name in content or key.name not in optional]
            values = {name: content[name] for name in names}
            values["about"] = About(**content.get("about", {}))
            values["golden"] = {
                name: _golden(rows, values["signatures"][name]) for name, rows in content["golden"].items()
            }
            if not 0 <= float(values["tolerance"]) < 1 or not isinstance(values["sha256"], dict):
                raise ValueError("its tolerance is no number from 0 to 1, or it has no sha256 of files")
            for sides in values["signatures"].values():
                for side in ("inputs", "outputs"):
                    {key: (spec["dtype"], list(spec["shape"])) for key, spec in sides[side].items()}
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it lacks or has an odd {error}") from error
        return cls(**values)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, whole or not at all."""
        content = _text(self.to_json())
        with replacing(path) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Contract:
        """Reads the file.

        Raises:
            DataError: if it is missing, broken or no contract.
        """
        content = read_json(path, "contract")
        try:
            return cls.from_json(content)
        except ValueError as error:
            raise DataError(f"{path} is no contract: {error}. Export the model again.") from error


def _golden(rows: dict[str, Any], specs: dict[str, Any]) -> Golden:
    sides = {
        side: {key: from_json(rows[side][key], spec["dtype"], spec["shape"]) for key, spec in specs[side].items()}
        for side in ("inputs", "outputs")
    }
    if not all(sides.values()):
        raise ValueError("it has a signature without inputs or outputs")
    lengths = {values.shape[:1] for side in sides.values() for values in side.values()}
    if len(lengths) != 1 or lengths == {(0,)}:
        raise ValueError("its golden inputs and outputs have different numbers of rows, or none")
    scale = {name: float(value) for name, value in rows["scale"].items()}
    return Golden(sides["inputs"], sides["outputs"], scale, {name: Tie(*tie) for name, tie in rows["ties"].items()})


def _text(value: Any, indent: str = "") -> str:
    """Writes JSON with short values, and lists of plain ones, on one line: an embedding is a long list."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(line) <= 80 or not any(
        isinstance(item, dict | list) or (isinstance(item, str) and len(item) > _SHORT) for item in inner
    ):
        return line
    more = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {_text(item, more)}" for key, item in value.items()]
        opened, closed = "{}"
    else:
        parts, (opened, closed) = [_text(item, more) for item in value], "[]"
    return f"{opened}\n{more}" + f",\n{more}".join(parts) + f"\n{indent}{closed}"


def hashes(directory: Path) -> dict[str, str]:
    """Returns the SHA-256 of a SavedModel's files by relative path, those in `assets.extra` left out."""
    return {
        path.relative_to(directory).as_posix(): sha256_file(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] != "assets.extra"
    }


def written_shape(sizes: Sequence[int | None]) -> str:
    """Writes a shape: `B` for the batch, `?` for another size that is open.

    Example:

    >>> written_shape([None, 512]), written_shape([None, None])
    ('[B, 512]', '[B, ?]')
    """
    named = ["?" if size is None else str(size) for size in sizes]
    return "[" + ", ".join(["B", *named[1:]] if sizes and sizes[0] is None else named) + "]"


def contract_path(base: str | os.PathLike[str]) -> Path:
    """Returns where the contract of a model's newest export lies.

    Example:

    >>> contract_path("/models/flickr8k").as_posix()
    '/models/contracts/flickr8k.json'
    """
    base = Path(os.path.realpath(base))
    return base.parent / CONTRACTS / f"{base.name}.json"


def version_contract_path(version: Path) -> Path:
    """Returns where the contract of a version lies."""
    return version / "assets.extra" / "contract.json"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lists what clients of one export notice in the next: what is gone, and what is of another type or size.

    Args:
        before: `Contract.signatures`.
        after: the same, of the next export.

    Example:

    >>> side = {"text": {"dtype": "string", "shape": [None]}}
    >>> changes({"encode_text": {"inputs": side, "outputs": {}}}, {})
    ['the signature encode_text is gone']
    """
    found = []
    for name, sides in before.items():
        if name not in after:
            found.append(f"the signature {name} is gone")
            continue
        for side in ("inputs", "outputs"):
            # A client that knows nothing of a new output is served as before; a new input it does not send.
            for key in sides[side].keys() | (after[name][side].keys() if side == "inputs" else set()):
                old, new = sides[side].get(key), after[name][side].get(key)
                if old != new:
                    found.append(f"{name}: {side[:-1]} {key}: {_spec(old)} before, {_spec(new)} now")
    return sorted(found)


def _spec(spec: Mapping[str, Any] | None) -> str:
    if spec is None:
        return "none"
    return f"{spec['dtype']} {written_shape(spec['shape'])}"


def publish_contract(contract: Contract, base: Path, report: Callable[[str], None]) -> None:
    """Writes `contracts/NAME.json`, and says what clients of the one before will notice.

    Args:
        contract: of the version just published.
        base: the model's directory.
        report: takes a line for each change.
    """
    path = contract_path(base)
    if path.is_file():
        try:
            before = Contract.read(path)
        except DataError as error:
            report(f"{error} It is replaced.")
        else:
            for change in changes(before.signatures, contract.signatures):
                report(f"clients of version {before.model_version} will notice: {change}")
            if before.tolerance != contract.tolerance:
                report(
                    f"clients of version {before.model_version} will notice: outputs are exact to "
                    f"{contract.tolerance:.0e}, not {before.tolerance:.0e}"
                )
            # Where nothing is embedded any more, or yet, the signatures have said so.
            if before.similarity and contract.similarity and before.similarity != contract.similarity:
                report(
                    f"clients of version {before.model_version} will notice: the similarity is "
                    f"{contract.similarity['name']}, not {before.similarity.get('name')}"
                )
    contract.write(path)


def interface(sides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a signature's inputs and outputs in a form that compares: name -> (dtype, sizes)."""
    return {
        f"{side[:-1]} {key}": (spec["dtype"], tuple(spec["shape"]))
        for side in ("inputs", "outputs")
        for key, spec in sides[side].items()
    }
