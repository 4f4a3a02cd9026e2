"""Distributed examination of images: from blocks of records to images and reports.

The files of a block are named by its content, so that a later run finds existing results:

    blocks/00000012-DIGEST.records          records, one JSON object per line
    blocks/00000012-DIGEST-ATTEMPT.images   concatenated images to store
    blocks/00000012-DIGEST.json             report with the result of each record, written last

Each attempt writes its own file of images, named in its report. Two machines can process the same block without
conflicts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import PIL

from pipelines.beam import storage
from vsemb.data.images import BadImage
from vsemb.data.manifest import VERSION
from vsemb.data.records import ImageRecord
from vsemb.data.uris import RemoteImage
from vsemb.data.writing.validate import UNREADABLE, examine_all, signature
from vsemb.errors import DataError, VsembError


@dataclass(frozen=True)
class BlockTask:
    """Block to examine.

    Attributes:
        number: number of the block, from 0.
        first: position of its first record in the source.
        path: path of its files without suffix.
        max_side: see `vsemb.data.images.sanitise_image`.
        threads: number of threads for reading and decoding.
        retry: whether to repeat an examination with unreadable images, because servers may answer later.
    """

    number: int
    first: int
    path: str
    max_side: int | None
    threads: int
    retry: bool = False


@dataclass(frozen=True)
class BlockSummary:
    """Summary of a report for the plan of the shards.

    Attributes:
        number: number of the block.
        report: path of the report.
        kept: split -> number of images.
        skipped: `key`, `split`, `image` and `reason` of the skipped images, in source order.
        dropped: number of skipped empty captions.
        with_image: key of an image with bytes, or None.
        without_image: key of an image without bytes, or None.
        error: error in the source, or None.
    """

    number: int
    report: str
    kept: dict[str, int]
    skipped: list[dict[str, Any]]
    dropped: int
    with_image: str | None
    without_image: str | None
    error: str | None = None


def write_blocks(
    records: Iterable[ImageRecord],
    folder: str,
    size: int,
    *,
    max_side: int | None,
    threads: int,
) -> Iterator[BlockTask]:
    """Write the records of a source in blocks; existing blocks are not written again.

    Args:
        records: records of the source.
        folder: folder of the blocks.
        size: number of records per block.
        max_side: see `vsemb.data.images.sanitise_image`.
        threads: see `BlockTask`.

    Yields:
        One task per block.

    Raises:
        DataError: if a record contains its image instead of a path or URI.
    """
    there = storage.listing(folder)
    rest = iter(records)
    number = 0
    while block := list(islice(rest, size)):
        digest = hashlib.sha256(json.dumps([VERSION, PIL.__version__, max_side, number * size]).encode())
        for record in block:
            digest.update(signature(record).encode())
            digest.update(json.dumps(_place(record)).encode())
        stem = f"{number:08d}-{digest.hexdigest()[:24]}"
        done = f"{stem}.json" in there
        task = BlockTask(number, number * size, storage.join(folder, stem), max_side, threads, retry=done)
        if f"{stem}.records" not in there:
            storage.write_lines(f"{task.path}.records", map(_to_json, block))
        yield task
        number += 1


def _place(record: ImageRecord) -> str | None:
    if isinstance(record.image, bytes | BadImage):
        raise DataError(
            f"The image {record.key!r} lies in its source and not in a file or behind a URI, so it cannot be "
            "read elsewhere. Use `vsemb prepare`."
        )
    if isinstance(record.image, Path):
        return os.path.abspath(record.image)
    return record.image.uri if record.image is not None else None


def _to_json(record: ImageRecord) -> dict[str, Any]:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return fields | {"image": _place(record), "remote": isinstance(record.image, RemoteImage)}


def _from_json(fields: dict[str, Any]) -> ImageRecord:
    remote, image = fields.pop("remote"), fields.pop("image")
    for name in ("captions", "objects", "alignments", "caption_ids"):
        fields[name] = tuple(fields[name])
    if image is not None:
        image = RemoteImage(image) if remote else Path(image)
    return ImageRecord(image=image, **fields)


def examine_block(task: BlockTask) -> BlockSummary:
    """Examine a block, unless its report exists.

    Returns:
        The summary; for a malformed record a summary with `error`, without files.
    """
    report_path = f"{task.path}.json"
    if storage.exists(report_path):
        report = storage.read_json(report_path)
        unread = any((line["reason"] or "").startswith(UNREADABLE) for line in report["lines"])
        if not (task.retry and unread):
            return _summary(task.number, report_path, report)
    records = [_from_json(fields) for fields in storage.read_lines(f"{task.path}.records")]
    lines: list[dict[str, Any]] = []
    images_path = f"{task.path}-{uuid.uuid4().hex[:12]}.images"
    try:
        with storage.writing(images_path) as temporary, open(temporary, "wb") as images:
            for place, record, outcome in examine_all(records, {}, task.max_side, task.threads):
                assert outcome is not None
                line, encoded = outcome
                line |= {"position": task.first + place, "split": record.split, "image": _place(record)}
                line |= {"offset": images.tell(), "length": len(encoded or b"")}
                images.write(encoded or b"")
                lines.append(line)
    except VsembError as error:
        if isinstance(error.__cause__, OSError) or isinstance(error, ImportError):
            raise  # Error of this machine; the runner may try another.
        return BlockSummary(task.number, report_path, {}, [], 0, None, None, str(error))
    report = {"images": images_path, "lines": lines}
    storage.write_json(report_path, report)
    return _summary(task.number, report_path, report)


def _summary(number: int, path: str, report: dict[str, Any]) -> BlockSummary:
    kept: dict[str, int] = {}
    example: dict[bool, str] = {}
    skipped = []
    for line in report["lines"]:
        if line["entry"] is None:
            skipped.append({name: line[name] for name in ("key", "split", "image", "reason")})
            continue
        kept[line["split"]] = kept.get(line["split"], 0) + 1
        example.setdefault(line["entry"]["width"] is not None, line["key"])
    dropped = sum(line["dropped"] for line in report["lines"])
    return BlockSummary(number, path, kept, skipped, dropped, example.get(True), example.get(False))
