"""The contract of an exported model: what it takes and gives, as a file that needs no TensorFlow to read.

One copy lies in the version, `NAME/N/assets.extra/contract.json`, published with it; the newest export's
also beside the models, `contracts/NAME.json`, where clients and reviewers look. `vsemb verify` holds a model
to it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vsemb.errors import DataError
from vsemb.exporting.reference_outputs import Arrays, Tie, from_json, to_json
from vsemb.exporting.versions import CONTRACTS
from vsemb.files import read_json, sha256_file, write_text

FORMAT, VERSION = "vsemb-contract", 1
SIDES = ("inputs", "outputs")
#: Signature -> inputs, outputs -> name -> what is said of it, such as `dtype` and `shape`.
Signatures = dict[str, dict[str, dict[str, Any]]]

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

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "scale": dict(self.scale),
            "ties": {output: list(tie) for output, tie in self.ties.items()},
            "inputs": {key: to_json(values) for key, values in self.inputs.items()},
            "outputs": {key: to_json(values) for key, values in self.outputs.items()},
        }

    @classmethod
    def from_json(cls, content: dict[str, Any], specs: dict[str, Any]) -> Golden:
        """Rebuilds the rows of a signature.

        Raises:
            ValueError: for rows that are none, or not of these specs.
        """
        sides = {
            side: {
                key: from_json(content[side][key], spec["dtype"], spec["shape"]) for key, spec in specs[side].items()
            }
            for side in SIDES
        }
        if not sides["inputs"] or not sides["outputs"]:
            raise ValueError("it has a signature without inputs or outputs")
        lengths = {values.shape[:1] for side in sides.values() for values in side.values()}
        if len(lengths) != 1 or lengths == {(0,)}:
            raise ValueError("its golden inputs and outputs have different numbers of rows, or none")
        scale = {name: float(value) for name, value in content["scale"].items()}
        return cls(**sides, scale=scale, ties={name: Tie(*tie) for name, tie in content["ties"].items()})


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
        plain = {name: value for name, value in vars(self).items() if name != "golden"}
        golden = {name: rows.to_json() for name, rows in self.golden.items()}
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
            values = {each.name: content[each.name] for each in fields(cls) if each.name in content}
            signatures = values["signatures"]
            values["about"] = About(**content.get("about", {}))
            values["golden"] = {
                name: Golden.from_json(rows, signatures[name]) for name, rows in content["golden"].items()
            }
            if not 0 <= float(values["tolerance"]) < 1 or not isinstance(values["sha256"], dict):
                raise ValueError("its tolerance is no number from 0 to 1, or it has no sha256 of files")
            for sides in signatures.values():
                for side in SIDES:
                    {key: (spec["dtype"], list(spec["shape"])) for key, spec in sides[side].items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it lacks or has an odd {error}") from error

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, whole or not at all."""
        write_text(path, _text(self.to_json()) + "\n")

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


def _text(value: Any, indent: str = "") -> str:
    """Writes JSON with short values, and lists of plain ones, on one line: an embedding is a long list."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(line) <= 80 or not any(isinstance(item, dict | list) or len(str(item)) > _SHORT for item in items):
        return line
    more = indent + "  "
    keys = [f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(value, dict) else "" for key in value]
    parts = [key + _text(item, more) for key, item in zip(keys, items, strict=True)]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
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


def written_spec(spec: Mapping[str, Any] | None) -> str:
    """Writes the type and shape of an input or output, such as `float32 [B, 512]`; `none` where there is none."""
    return "none" if spec is None else f"{spec['dtype']} {written_shape(spec['shape'])}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields what two signatures differ in: (`input k` or `output ids`, its spec before, its spec after), as text."""
    for side in SIDES:
        for key in sorted(before[side].keys() | after[side].keys()):
            old, new = (written_spec(sides[side].get(key)) for sides in (before, after))
            if old != new:
                yield f"{side[:-1]} {key}", old, new


def changes(before: Contract, after: Contract) -> list[str]:
    """Lists what clients of one export notice in the next: what is gone, and what is of another type or size."""
    found = []
    for name, sides in before.signatures.items():
        if name not in after.signatures:
            found.append(f"the signature {name} is gone")
            continue
        for what, old, new in differences(sides, after.signatures[name]):
            # A client that knows nothing of a new output is served as before; a new input it does not send.
            if old != "none" or what.startswith("input"):
                found.append(f"{name}: {what}: {old} before, {new} now")
    if before.tolerance != after.tolerance:
        found.append(f"outputs are exact to {after.tolerance:.0e}, not {before.tolerance:.0e}")
    # Where nothing is embedded any more, or yet, the signatures have said so.
    if before.similarity and after.similarity and before.similarity != after.similarity:
        found.append(f"the similarity is {after.similarity['name']}, not {before.similarity.get('name')}")
    return found


def publish_contract(contract: Contract, base: Path, report: Callable[[str], None]) -> None:
    """Writes `contracts/NAME.json`, and says what clients of the one before will notice.

    Args:
        contract: of the version just published.
        base: the model's directory.
        report: takes a line for each change.
    """
    path = contract_path(base)
    try:
        before = Contract.read(path) if path.is_file() else contract
    except DataError as error:
        report(f"{error} It is replaced.")
        before = contract
    for change in changes(before, contract):
        report(f"clients of version {before.model_version} will notice: {change}")
    contract.write(path)


def serving_command(path: str | os.PathLike[str]) -> str:
    """Returns shell lines that verify a version's model, serve it and ask it once.

    Args:
        path: the directory of a version, with its contract.

    Example:

        print(serving_command("/models/flickr8k/1"))
    """
    path = Path(path).absolute()
    base, instance = path.parent, Contract.read(version_contract_path(path)).instance
    name, where = shlex.quote(base.name), shlex.quote(str(base))
    url = shlex.quote(f"http://localhost:8501/v1/models/{base.name}:predict")
    if isinstance(instance, dict) and "b64" in instance:
        curl = (
            f"""printf '{{"instances": [{{"b64": "%s"}}]}}' "$(base64 -w0 {instance["b64"]})" |\n    curl -d @- {url}"""
        )
    else:
        curl = f"curl -d {shlex.quote(json.dumps({'instances': [instance]}))} {url}"
    return (
        f"  vsemb verify {where}\n"
        f"  vsemb serve {where}\n"
        f"  {curl}\n"
        "or, with TensorFlow Serving, the same API:\n"
        f"  tensorflow_model_server --rest_api_port=8501 \\\n"
        f"    --model_name={name} --model_base_path={where}"
    )
