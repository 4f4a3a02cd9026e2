"""Job of `pipelines.beam_embed`: units, Beam pipeline and published files."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.beam import storage
from pipelines.beam.running import run_pipeline
from pipelines.beam.vectors import FORMAT, MANIFEST, VERSION, WRITERS
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, unknown_name
from vsemb.exporting.contract import Contract, version_contract_path
from vsemb.exporting.versions import existing_versions
from vsemb.files import replacing_directory, sha256_bytes
from vsemb.runs.indexing import split_names

if TYPE_CHECKING:
    import apache_beam as beam

    from pipelines.beam.embedding import FileTask, Unit

#: Kind -> signature and its input.
SIGNATURES = {"image": ("encode_image", "image_bytes"), "text": ("encode_text", "text")}
#: Kind -> number of rows per batch.
BATCH = {"image": 64, "text": 256}
_LIST_UNIT = 1024


@dataclass(frozen=True)
class Model:
    """Exported model.

    Attributes:
        path: directory of the version.
        contract: contract of the version.
    """

    path: str
    contract: Contract

    @classmethod
    def open(cls, path: str, kind: str) -> Model:
        """Open a version of a model, or the newest version.

        Args:
            path: directory of the version or of all versions; a URI must be of a version.
            kind: type of the items to embed, `image` or `text`.

        Raises:
            DataError: if the model does not exist, or does not embed items of this type as one vector each.
        """
        where = path.rstrip("/")
        if storage.is_local(path):
            if not (Path(path) / "saved_model.pb").exists():
                versions = existing_versions(Path(path))
                if not versions:
                    raise DataError(f"No SavedModel at {path}. Make one with `vsemb export`.")
                where = str(Path(path) / str(versions[-1]))
            where = os.path.realpath(where)
            contract = Contract.read(version_contract_path(Path(where)))
        else:
            try:
                contract = Contract.from_json(storage.read_json(storage.join(where, "assets.extra", "contract.json")))
            except ValueError as error:
                raise DataError(f"The contract of {path} cannot be read: {error}. Export the model again.") from error
        name, argument = SIGNATURES[kind]
        sides = contract.signatures.get(name)
        if sides is None:
            there = ", ".join(contract.signatures)
            raise DataError(f"The model at {where} has no signature {name}, which {kind}s need; only {there}.")
        shape = sides["outputs"].get("embedding", {}).get("shape", [])
        if list(sides["inputs"]) != [argument] or len(shape) != 2:
            raise DataError(f"The model at {where} embeds {kind}s as sets of vectors; use `vsemb search`.")
        return cls(where, contract)


def dataset_units(
    dataset: StoredDataset, split: str, kind: str, rows_per_file: int, shards: str | None = None
) -> list[Unit]:
    """Return the shards of a dataset's splits as units, in the order of an index's rows.

    Args:
        dataset: the dataset.
        split: name of the split, or `all`.
        kind: `image` or `text`.
        rows_per_file: approximate number of rows per file.
        shards: path or URI of the folder with the shards for workers; None for the dataset's directory.

    Raises:
        DataError: for kind `image` if the dataset contains only features.
    """
    from pipelines.beam.embedding import Unit

    units: list[Unit] = []
    first = 0
    for name in split_names(dataset, split):
        part = dataset.split(name)
        if kind == "image" and not part.has_images:
            raise DataError(f"The split {name!r} of {dataset.path} holds no images, only features.")
        names = dataset.manifest["splits"][name]["shards"]
        weights = None if kind == "image" else np.diff(part.caption_offsets)
        rows = np.bincount(part.index.numbers("shard"), weights, len(names)).astype(int).tolist()
        for shard, count in zip(names, rows, strict=True):
            path = storage.join(shards or str(dataset.path.resolve()), shard)
            units.append(Unit(kind, path, name, first, count, BATCH[kind], first // rows_per_file))
            first += count
    return units


def dataset_content(dataset: StoredDataset, split: str) -> str:
    """Return a fingerprint of the content of the splits, for `embed`."""
    return sha256_bytes(json.dumps([dataset.fingerprint, split_names(dataset, split)]).encode())


def list_units(path: str, kind: str, folder: str, rows_per_file: int) -> list[Unit]:
    """Write the non-empty lines of a file in parts, and return the parts as units.

    Raises:
        DataError: if the file cannot be read or is empty.
    """
    from pipelines.beam.embedding import Unit
    from vsemb.data.readers.source import text_lines
    from vsemb.data.uris import scheme

    lines = []
    for number, line in enumerate(text_lines(Path(path))):
        if kind == "image" and line.strip() and not scheme(line):
            line = os.path.abspath(line)
        if line.strip():
            lines.append((number, line))
    if not lines:
        raise DataError(f"{path} holds no lines to embed.")
    units = []
    for first in range(0, len(lines), _LIST_UNIT):
        target = storage.join(folder, f"input-{first // _LIST_UNIT:08d}.jsonl")
        part = lines[first : first + _LIST_UNIT]
        storage.write_lines(target, part)
        units.append(Unit(kind, target, "", first, len(part), BATCH[kind], first // rows_per_file))
    return units


def embed(
    model: Model,
    out: str,
    units: Callable[[str], list[Unit]],
    *,
    kind: str,
    content: str,
    format: str = "parquet",
    flags: Sequence[str] = (),
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Embed units with a Beam pipeline; write `out/embeddings-NNNNN-of-NNNNN.FORMAT` and a manifest.

    Args:
        model: the exported model.
        out: directory to write, or folder in a store; complete when the manifest exists.
        units: function from a folder for working files to the units.
        kind: `image` or `text`.
        content: fingerprint of the items. With the fingerprint of the model it identifies an interrupted job, whose
            finished files are kept.
        format: `parquet` or `tfrecord`.
        flags: options of Beam.
        overwrite: whether to replace older embeddings at `out`.
        report: function for progress messages.

    Returns:
        The manifest. Rows without embedding are in its `bad` and in `dead-letters.jsonl` in `out`.

    Raises:
        DataError: if `out` contains other files, or the job fails.
        InvalidArgumentError: for an unknown format.
    """
    if format not in WRITERS:
        raise unknown_name("format", format, WRITERS)
    storage.need_beam()
    from pipelines.beam.embedding import FileTask

    out = os.path.realpath(out) if storage.is_local(out) else out.rstrip("/")
    about = {"kind": kind, "content": content, "files_are": format, "model": model.contract.sha256}
    names = storage.listing(out)
    if names and not overwrite:
        older = storage.read_json(storage.join(out, MANIFEST)) if MANIFEST in names else {}
        if older.get("format") == FORMAT and all(older.get(name) == about[name] for name in about):
            report(f"{out} holds these embeddings already; nothing to do.")
            return older
    _refuse_other(out, names, overwrite)
    digest = sha256_bytes(json.dumps(about, sort_keys=True).encode())[:12]
    folder, _, base = out.rpartition("/")
    work = storage.join(folder, f".{base}.{digest}.partial")
    if storage.is_local(work):
        os.makedirs(work, exist_ok=True)
    all_units = units(work)
    rows: Counter[int] = Counter()
    for unit in all_units:
        rows[unit.file] += unit.rows
    numbers = sorted(rows)
    files = {}
    for place, number in enumerate(numbers):
        name = f"embeddings-{place:05d}-of-{len(numbers):05d}.{format}"
        path = storage.join(work, name)
        files[number] = FileTask(place, rows[number], path, f"{path}.json", format)
    there = storage.listing(work)
    done = {number for number, file in files.items() if file.report.rpartition("/")[2] in there}
    if done:
        report(f"Continuing an interrupted job: {len(done)} of {len(files)} files are done.")
    todo = [unit for unit in all_units if unit.file not in done]
    if todo:
        run_pipeline(
            functools.partial(_build, units=todo, files=files, model=model, kind=kind),
            flags,
            watch=lambda: sum(name.endswith(f"{format}.json") for name in storage.listing(work)),
            total=len(files),
            unit="file",
            name="embed",
        )
    reports = [storage.read_json(files[number].report) for number in numbers]
    described = []
    for number, item in zip(numbers, reports, strict=True):
        name = files[number].path.rpartition("/")[2]
        described.append({"name": name, "rows": item["rows"], "bytes": item["bytes"], "sha256": item["sha256"]})
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "run": model.contract.fingerprint,
        "rows": sum(item["rows"] for item in reports),
        "dim": reports[0]["dim"],
        "files": described,
        "bad": [bad for item in reports for bad in item["bad"]],
    }
    _publish(out, work, manifest)
    return manifest


def _build(pipeline: beam.Pipeline, *, units: list[Unit], files: dict[int, FileTask], model: Model, kind: str) -> None:
    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference

    from pipelines.beam.embedding import SavedModelHandler, read_blocks, write_file

    (
        pipeline
        | "Units" >> beam.Create(units)
        | "Spread units" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(lambda unit: ([block] for block in read_blocks(unit)))
        | "Embed" >> RunInference(SavedModelHandler(model.path, *SIGNATURES[kind]))
        | "By file" >> beam.Map(lambda item: (item.block.file, item))
        | "Together" >> beam.GroupByKey()
        | "Write" >> beam.Map(lambda pair: write_file(files[pair[0]], pair[1]))
    )


def _refuse_other(out: str, names: dict[str, int], overwrite: bool) -> None:
    other = [name for name in names if name not in (MANIFEST, "dead-letters.jsonl")]
    if any(not name.startswith("embeddings-") for name in other):
        raise DataError(f"{out} holds {other[0]!r} and no embeddings; choose another --out.")
    if names and MANIFEST in names and not overwrite:
        raise DataError(f"{out} holds other embeddings; choose another --out, or replace them with --overwrite.")


def _publish(out: str, work: str, manifest: dict[str, Any]) -> None:
    """Move the finished files to `out`, the manifest last, and remove the working files."""
    storage.write_lines(storage.join(work, "dead-letters.jsonl"), manifest["bad"])
    storage.write_json(storage.join(work, MANIFEST), manifest)
    names = [file["name"] for file in manifest["files"]] + ["dead-letters.jsonl"]
    if storage.is_local(out):
        with replacing_directory(out, overwrite=True) as temporary:
            for name in [*names, MANIFEST]:
                os.replace(Path(work) / name, temporary / name)
        shutil.rmtree(work)
        return
    storage.remove([storage.join(out, name) for name in (MANIFEST, *storage.listing(out))])
    for name in [*names, MANIFEST]:
        storage.move(storage.join(work, name), storage.join(out, name))
    storage.remove([storage.join(work, name) for name in storage.listing(work)])
