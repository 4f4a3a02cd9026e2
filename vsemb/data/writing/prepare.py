"""Read sources, join them, and write them as a dataset."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import say
from vsemb.data.duplicates import shared_images
from vsemb.data.readers import Reader, infer_format, read
from vsemb.data.readers.source import Source, listed
from vsemb.data.records import ImageRecord, repeated_key
from vsemb.data.store import StoredDataset
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError, counted, invalid_argument
from vsemb.files import sha256_file

_NAMES_SHOWN = 3


def open_source(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: Reader | str | None,
    on_bad_image: str,
    options: Mapping[str, Any],
    *,
    val_to_train: bool = False,
) -> Source:
    """Read one or more sources; print inferred formats, notes and malformed rows.

    Args:
        source: the file, folder or other name to read, or a sequence of them, whose splits are merged. Then the keys
            of images and ids of captions begin with the name of their source, without its ending.
        format: a reader or its kind; None to infer it from each source.
        on_bad_image: `"skip"` leaves out malformed rows; `"fail"` raises an error.
        options: fields of the reader.
        val_to_train: whether to move the images of `val` to `train`.

    Raises:
        DataError: for a broken source, or malformed rows with `on_bad_image="fail"`; the message names them.
        InvalidArgumentError: for an unknown format or option.
    """
    if not isinstance(source, str | os.PathLike):
        sources = [(one, open_source(one, format, on_bad_image, options, val_to_train=val_to_train)) for one in source]
        if not sources:
            raise invalid_argument("source", source, "at least one source")
        return sources[0][1] if len(sources) == 1 else _joined(sources)
    if format is None:
        format = infer_format(source)
        say(f"{source} has the format {format}. Choose another with `format`.")
    opened = read(format, source, **options)
    for line in opened.notes:
        say(line)
    if opened.bad and on_bad_image == "fail":
        fix = "Correct them, or leave them out with `on_bad_image=skip`."
        raise DataError(f"{source} has {counted(len(opened.bad), 'malformed row')}: {listed(opened.bad)} {fix}")
    for line in opened.bad:
        say(f"left out: {line}")
    return _with_val_in_train(opened) if val_to_train else opened


def write_source(source: Source, out: str | os.PathLike[str], **options: Any) -> StoredDataset:
    """Write a source as a dataset.

    Args:
        source: the source.
        out: the directory to create. `write_dataset` describes how an interrupted call continues.
        **options: keywords of `write_dataset`, such as `name`.

    Returns:
        The dataset, opened.

    Raises:
        DataError: as `write_dataset`.
    """
    dataset = write_dataset(
        source.records,
        out,
        source=described_source(source),
        total=source.total,
        report=say,
        before_publish=lambda dataset: write_beside(dataset, source),
        **options,
    )
    for line in shared_images(dataset):
        say(line)
    return dataset


@dataclass(frozen=True)
class _Trained:
    """Records in which the split `val` is replaced by `train`."""

    records: Iterable[ImageRecord]

    def __iter__(self) -> Iterator[ImageRecord]:
        for record in self.records:
            yield replace(record, split="train") if record.split == "val" else record


def _with_val_in_train(source: Source) -> Source:
    if source.rows is not None:
        raise invalid_argument("val_to_train", True, f"false for features without images, as of {source.format}")
    moved: Any = _Trained(source.records)
    records = list(moved) if isinstance(source.records, list) else moved
    return replace(source, records=records, options={**source.options, "val_to_train": True})


@dataclass(frozen=True)
class _Records:
    """The records of several sources; keys and caption ids get the name of their source as a prefix."""

    sources: Mapping[str, Source]

    def __iter__(self) -> Iterator[ImageRecord]:
        for name, source in self.sources.items():
            for record in source.records:
                ids = tuple(f"{name}/{own}" for own in record.caption_ids)
                yield replace(record, key=f"{name}/{record.key}", caption_ids=ids)


def _joined(opened: Sequence[tuple[str | os.PathLike[str], Source]]) -> Source:
    """Merge sources to one.

    Raises:
        DataError: if two have the same name, or one has features or files besides its images and captions.
    """
    named = {Path(os.path.abspath(path)).stem: source for path, source in opened}
    if len(named) < len(opened):
        paths = ", ".join(str(path) for path, _ in opened)
        raise DataError(f"Several sources must have different names; got {paths}. Rename a folder.")
    for path, source in opened:
        if source.knows_more:
            raise DataError(f"{path} must be prepared alone: its format {source.format} has more than captions.")
    records: Any = _Records(named)
    if all(isinstance(source.records, list) for _, source in opened):
        records = list(records)
    described = [described_source(source) for _, source in opened]
    return Source("joined", "+".join(named), records, options={"sources": described})


def described_source(source: Source) -> dict[str, Any]:
    """Return the entry of a manifest that describes its source.

    If the source's records are a list, the entry includes a SHA-256 of their keys and file sizes. A later call detects
    added and removed images with it, and images of another size; `write_dataset` compares newer files. For images
    behind URIs it covers the keys only.

    Raises:
        DataError: if a key occurs twice in such a list.
    """
    described = {
        "format": source.format,
        "path_name": source.path_name,
        "sha256": {file.name: sha256_file(file) for file in source.files},
        "options": source.options,
    }
    if isinstance(source.records, list):
        digest = hashlib.sha256()
        seen = set()
        for position, record in enumerate(source.records):
            if record.key in seen:
                raise repeated_key(source.records, position, record)
            seen.add(record.key)
            file = record.image
            size = file.stat().st_size if isinstance(file, Path) and file.exists() else None
            digest.update(f"{record.key!r} {size}\n".encode())
        described["images_sha256"] = digest.hexdigest()
    return described


def write_beside(dataset: StoredDataset, source: Source) -> None:
    """Write the other content of a source than its records: call its `finish`, and write precomputed features."""
    source.finish(dataset)
    if source.rows is None:
        return
    from vsemb.data.features.compute import write_precomputed

    splits = [dataset.split(name) for name in dataset.splits]
    ids = np.concatenate([split.ids for split in splits])
    write_precomputed(dataset, ids, [source.rows(split.name, split.keys) for split in splits])


def summary(manifest: Mapping[str, Any]) -> list[str]:
    """Return the numbers of skipped images and captions of a manifest, with reasons, as lines.

    Example:

    ```python
    print("\\n".join(summary(Dataset.open("data/flickr8k").manifest)))
    ```
    """
    lines = []
    reasons = Counter(image["reason"] for image in manifest["skipped"])
    for reason, count in reasons.most_common():
        keys = [image["key"] for image in manifest["skipped"] if image["reason"] == reason]
        more = ", ..." if count > _NAMES_SHOWN else ""
        lines.append(f"left out {counted(count, 'image')}: {reason} ({', '.join(keys[:_NAMES_SHOWN])}{more})")
    if reasons:
        lines.append("manifest.json lists all images that were left out.")
    if manifest["dropped_captions"]:
        lines.append(f"left out {counted(manifest['dropped_captions'], 'empty caption')}")
    return lines
