"""The contract of an exported model: its inputs, outputs and examples, in a JSON file.

Each version holds a copy, `NAME/N/assets.extra/contract.json`. The newest export's contract is also written beside the
models, `contracts/NAME.json`, for clients and reviewers. `vsemb verify` checks a model against it.
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
from vsemb.exporting.reference_outputs import SIDES, Golden
from vsemb.exporting.versions import CONTRACTS
from vsemb.files import read_json, require_contained, sha256_file, write_text

FORMAT, VERSION = "vsemb-contract", 1
#: Signature -> inputs, outputs -> name -> its spec: `dtype`, `shape` and, for an optional input, `default`.
Signatures = dict[str, dict[str, dict[str, Any]]]

# Placeholder for the content of a file in a command.
_FILE = "<file>"
# Lists of strings up to this length are written on one line.
_SHORT = 40


@dataclass(frozen=True)
class About:
    """Sentences about a model for its model card.

    Attributes:
        what: its purpose.
        reading: interpretation of its outputs.
        made: name of its outputs, such as `embeddings`.
        invalid: outputs of an invalid row.
        limits: limits of its inputs and outputs.
        cannot: tasks that it does not support.
    """

    what: str = ""
    reading: str = ""
    made: str = "outputs"
    invalid: str = "zeros"
    limits: Sequence[str] = ()
    cannot: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Contract:
    """Inputs, outputs and examples of one version of a model.

    Attributes:
        model: name under which it is served.
        model_version: number of the version.
        fingerprint: fingerprint of the run, its weights and recipe; None if unknown.
        signatures: name -> inputs, outputs -> name -> `dtype`, `shape` and, for optional inputs, `default`. The batch
            and other open sizes are None.
        golden: signature -> golden rows.
        tolerance: maximum difference from the golden outputs, relative to the largest entry of an output or the golden
            rows' scale, whichever is larger.
        tolerance_reason: reason for the tolerance.
        dim: size of an embedding; None for models without embeddings.
        similarity: its `to_json`; None for models without embeddings.
        geometry: common property of all embeddings; None for models without embeddings.
        max_text_bytes: bytes read of a text; None for models without texts.
        max_pixels: larger images are invalid; None for models without images.
        libraries: libraries that a server needs besides TensorFlow.
        versions: versions of vsemb and TensorFlow at export.
        sha256: hex digest of each file of the SavedModel.
        max_tokens: tokens read of a text; None for no limit.
        settings: settings of this kind of model, such as the beam width.
        examples: signature -> example row, input name -> value as TensorFlow Serving's REST API takes it;
            `{"b64": FILE}` for the content of a file.
        about: sentences for the model card.
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
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    about: About = field(default_factory=About)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        plain = {name: value for name, value in vars(self).items() if name != "golden"}
        golden = {name: rows.to_json() for name, rows in self.golden.items()}
        return {"format": FORMAT, "version": VERSION, **plain, "about": asdict(self.about), "golden": golden}

    @classmethod
    def from_json(cls, content: Any) -> Contract:
        """Read a contract from JSON values.

        Raises:
            ValueError: for malformed content.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"its format must be {FORMAT}")
        if content.get("version") != VERSION:
            raise ValueError(f"its version must be {VERSION}; got {content.get('version')!r}")
        try:
            values = {each.name: content[each.name] for each in fields(cls) if each.name in content}
            signatures = values["signatures"]
            values["about"] = About(**content.get("about", {}))
            values["golden"] = {
                name: Golden.from_json(rows, signatures[name]) for name, rows in content["golden"].items()
            }
            if not 0 <= float(values["tolerance"]) < 1 or not isinstance(values["sha256"], dict):
                raise ValueError("its tolerance must be from 0 to 1, and `sha256` must be an object")
            for sides in signatures.values():
                for side in SIDES:
                    {key: (spec["dtype"], list(spec["shape"])) for key, spec in sides[side].items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"it has a missing or malformed entry: {error}") from error

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file atomically."""
        write_text(path, _text(self.to_json()) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Contract:
        """Read the file.

        Raises:
            DataError: if it is missing, unreadable or not a contract.
        """
        content = read_json(path, "contract")
        try:
            return cls.from_json(content)
        except ValueError as error:
            raise DataError(f"{path} must be a contract: {error}. Export the model again.") from error


def _text(value: Any, indent: str = "") -> str:
    """Write JSON with short values, and lists of scalars, such as embeddings, on one line."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) <= 80 or not isinstance(value, dict | list):
        return line
    items = list(value.values() if isinstance(value, dict) else value)
    if not any(isinstance(item, dict | list) or len(str(item)) > _SHORT for item in items):
        return line
    more = indent + "  "
    parts = [_text(item, more) for item in items]
    if isinstance(value, dict):
        keys = [json.dumps(key, ensure_ascii=False) for key in value]
        parts = [f"{key}: {part}" for key, part in zip(keys, parts, strict=True)]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{more}" + f",\n{more}".join(parts) + f"\n{indent}{closed}"


def hashes(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of a SavedModel's files by relative path, except `assets.extra`.

    Raises:
        DataError: if it has other files than regular ones, which a loader would wait for.
    """
    require_contained(directory, "model", links=True)
    return {
        path.relative_to(directory).as_posix(): sha256_file(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.relative_to(directory).parts[0] != "assets.extra"
    }


def written_shape(sizes: Sequence[int | None]) -> str:
    """Format a shape: `B` for the batch, `?` for other open sizes.

    Example:

    >>> written_shape([None, 512]), written_shape([None, None])
    ('[B, 512]', '[B, ?]')
    """
    named = ["?" if size is None else str(size) for size in sizes]
    if sizes and sizes[0] is None:
        named[0] = "B"
    return f"[{', '.join(named)}]"


def contract_path(base: str | os.PathLike[str]) -> Path:
    """Return the path of the contract of a model's newest export.

    Example:

    >>> contract_path("/models/flickr8k").as_posix()
    '/models/contracts/flickr8k.json'
    """
    base = Path(os.path.realpath(base))
    return base.parent / CONTRACTS / f"{base.name}.json"


def version_contract_path(version: Path) -> Path:
    """Return the path of a version's contract."""
    return version / "assets.extra" / "contract.json"


def written_spec(spec: Mapping[str, Any] | None) -> str:
    """Format the spec of an input or output, such as `float32 [B, 512]` or `int32 [B] = 10`; `none` for None."""
    if spec is None:
        return "none"
    default = f" = {', '.join(map(str, spec['default']))}" if "default" in spec else ""
    return f"{spec['dtype']} {written_shape(spec['shape'])}{default}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the differences of two signatures: (`input k` or `output ids`, old spec, new spec), as text."""
    for side in SIDES:
        for key in sorted(before[side].keys() | after[side].keys()):
            old, new = (written_spec(sides[side].get(key)) for sides in (before, after))
            if old != new:
                yield f"{side[:-1]} {key}", old, new


def changes(before: Contract, after: Contract) -> list[str]:
    """List the changes between two exports that affect clients: removed signatures, other types and sizes."""
    changed = []
    for name, sides in before.signatures.items():
        if name not in after.signatures:
            changed.append(f"the signature {name} was removed")
            continue
        for what, old, new in differences(sides, after.signatures[name]):
            # New outputs do not affect existing clients, new inputs do.
            if old != "none" or what.startswith("input"):
                changed.append(f"{name}: {what}: {old} before, {new} now")
    if before.tolerance != after.tolerance:
        changed.append(f"the tolerance of outputs: {before.tolerance:.0e} before, {after.tolerance:.0e} now")
    # If only one model has embeddings, the signatures already differ.
    if before.similarity and after.similarity and before.similarity != after.similarity:
        changed.append(f"the similarity: {before.similarity.get('kind')} before, {after.similarity.get('kind')} now")
    return changed


def publish_contract(contract: Contract, base: Path, report: Callable[[str], None]) -> None:
    """Write `contracts/NAME.json` and report the changes that affect clients of the previous version.

    Args:
        contract: contract of the version just published.
        base: the model's directory.
        report: called with one line per change.
    """
    path = contract_path(base)
    try:
        before = Contract.read(path) if path.is_file() else contract
    except DataError as error:
        report(f"{error} It is replaced.")
        before = contract
    for change in changes(before, contract):
        report(f"Change for clients of version {before.model_version}: {change}.")
    contract.write(path)


def curl_command(url: str, signature: str, example: Mapping[str, Any], curl: str = "curl") -> str:
    """Return a shell command that calls one signature over REST.

    Args:
        url: URL of the model, `http://HOST:PORT/v1/models/NAME`.
        signature: name of the signature.
        example: one row, as in `Contract.examples`.
        curl: the program with its options.

    Example:

    >>> print(curl_command("http://localhost:8501/v1/models/pets", "encode_text", {"text": "a dog"}))
    curl -d '{"signature_name": "encode_text", "instances": [{"text": "a dog"}]}' http://localhost:8501/v1/models/pets:predict
    """
    files = [value["b64"] for value in example.values() if isinstance(value, dict)]
    row = {name: {"b64": _FILE} if isinstance(value, dict) else value for name, value in example.items()}
    body = json.dumps({"signature_name": signature, "instances": [row]})
    target = shlex.quote(f"{url}:predict")
    if not files:
        return f"{curl} -d {shlex.quote(body)} {target}"
    # printf interprets % and backslashes.
    body = body.replace("\\", "\\\\").replace("%", "%%").replace(f'"{_FILE}"', '"%s"')
    encoded = " ".join(f"\"$(base64 < {shlex.quote(file)} | tr -d '\\n')\"" for file in files)
    return f"printf {shlex.quote(body)} {encoded} |\n  {curl} -d @- {target}"


def serving_command(path: str | os.PathLike[str]) -> str:
    """Return shell commands that verify, serve and call the model of a version.

    Args:
        path: directory of a version with its contract.

    Example:

        print(serving_command("/models/flickr8k/1"))
    """
    path = Path(path).absolute()
    base, (signature, example) = path.parent, next(iter(Contract.read(version_contract_path(path)).examples.items()))
    name, where = shlex.quote(base.name), shlex.quote(str(base))
    curl = curl_command(f"http://localhost:8501/v1/models/{base.name}", signature, example).replace("\n", "\n  ")
    return (
        f"  vsemb verify {where}\n"
        f"  vsemb serve {where}\n"
        f"  {curl}\n"
        "or, with TensorFlow Serving, the same API:\n"
        f"  tensorflow_model_server --rest_api_port=8501 \\\n"
        f"    --model_name={name} --model_base_path={where}"
    )
