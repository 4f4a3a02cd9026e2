"""From records to the files of a dataset, continuing after the shards that an earlier run finished."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

from tqdm import tqdm

from vsemb.data.dataset import Dataset
from vsemb.data.manifest import index_line, ordered_splits, shard_name
from vsemb.data.records import ImageRecord
from vsemb.data.writing.finalize import FinishedSplit, write_index_and_manifest
from vsemb.data.writing.shards import SplitWriter, shard_file
from vsemb.data.writing.staging import WorkArea
from vsemb.data.writing.validate import Examined, examine_all, signature
from vsemb.errors import DataError


class SourceChanged(Exception):
    """A record differs from what the interrupted run saw."""


class BadImageFound(DataError):
    """An image that cannot be used where none may be left out."""


def complete(
    area: WorkArea,
    records: Iterable[ImageRecord],
    described: dict[str, Any],
    total: int | None,
    on_bad_image: str,
    say: Callable[[str], None],
    before_publish: Callable[[Dataset], None] | None,
) -> None:
    """Brings the work area to the point where only its rename is missing."""
    if area.complete():
        return
    per_shard = described["writing"]["images_per_shard"]
    writers = {
        split: SplitWriter(split, area.dataset, area.journal, per_shard, shards)
        for split, shards in area.finished().items()
    }
    if writers:
        done = sum(len(shard["records"]) for writer in writers.values() for shard in writer.finished)
        say(f"Continuing an interrupted run: {done} images are done.")
    try:
        _write_shards(area, records, writers, described, total, on_bad_image)
    finally:
        for writer in writers.values():
            writer.close()
    _write_index(area, writers, described)
    if before_publish is not None:
        before_publish(Dataset.open(area.dataset))
    area.mark_complete()


def _write_shards(
    area: WorkArea,
    records: Iterable[ImageRecord],
    writers: dict[str, SplitWriter],
    described: dict[str, Any],
    total: int | None,
    on_bad_image: str,
) -> None:
    writing = described["writing"]
    known = {record["position"]: record for writer in writers.values() for record in writer.records()}
    covered = {split: writer.covered for split, writer in writers.items()}
    seen: set[str] = set()
    number = 0
    position = -1
    images: bool | None = None
    with contextlib.closing(examine_all(records, known, writing["max_side"])) as examined:
        bar = tqdm(examined, desc="prepare", total=total, unit="image", disable=None)
        for position, record, outcome in bar:
            if record.key in seen:
                raise DataError(f"The key {record.key!r} occurs twice in the source; keys must be unique.")
            seen.add(record.key)
            if outcome is None:
                line = known[position]
                shifted = line["entry"] is not None and line["entry"]["id"] != number
                if shifted or signature(record) != line["signature"]:
                    raise SourceChanged
            elif position <= covered.get(record.split, -1):
                raise SourceChanged
            else:
                line = journal_line(position, record.key, outcome)
            if line["entry"] is None:
                if on_bad_image == "fail":
                    raise BadImageFound(
                        f"Image {record.key!r}: {line['reason']}. Mend it, or leave such images out "
                        "with --on-bad-image skip."
                    )
            else:
                line["entry"]["id"] = number
                number += 1
                has_image = line["entry"]["width"] is not None
                if images not in (None, has_image):
                    raise DataError(f"Image {record.key!r}: some records have image bytes and others do not.")
                images = has_image
            if outcome is None:
                continue
            if record.split not in writers:
                writers[record.split] = SplitWriter(
                    record.split, area.dataset, area.journal, writing["images_per_shard"], []
                )
            if line["entry"] is None:
                writers[record.split].skip(line)
            else:
                writers[record.split].add(line, outcome.encoded)
    if any(last > position for last in covered.values()):
        raise SourceChanged
    if not number:
        raise DataError(_nothing_left(writers, position + 1))
    for writer in writers.values():
        writer.finish_shard()


def journal_line(position: int, key: str, outcome: Examined) -> dict[str, Any]:
    """Returns what is kept of an examined record until its dataset is whole.

    Args:
        position: of the record in its source, from 0.
        key: of the image.
        outcome: what became of it.
    """
    entry = None if outcome.entry is None else {"id": None} | outcome.entry | {"shard": None, "offset": None}
    return {
        "position": position,
        "signature": outcome.signature,
        "key": key,
        "entry": entry,
        "reason": outcome.reason,
        "dropped": outcome.dropped,
    }


def _nothing_left(writers: dict[str, SplitWriter], count: int) -> str:
    if not count:
        return "The source holds no images."
    skipped = [record for writer in writers.values() for record in writer.records()]
    first = min(skipped, key=lambda record: record["position"])
    return f"None of {count} images can be used. The first, {first['key']!r}: {first['reason']}."


def _write_index(area: WorkArea, writers: dict[str, SplitWriter], described: dict[str, Any]) -> None:
    """Gives the shards their final names and writes the index files and the manifest."""
    splits: dict[str, FinishedSplit] = {}
    skipped: list[dict[str, Any]] = []
    dropped = 0
    for split in ordered_splits(writers):
        writer = writers[split]
        records = writer.records()
        skipped += [record for record in records if record["entry"] is None]
        dropped += sum(record["dropped"] for record in records)
        entries = [record["entry"] for record in records if record["entry"] is not None]
        if not entries:
            continue
        count = len(writer.finished)
        for shard in writer.finished:
            final = area.dataset / shard_name(split, shard["number"], count)
            file = shard_file(area.dataset, split, shard["number"])
            if file is not None and file != final:
                os.replace(file, final)
        splits[split] = FinishedSplit(
            images=len(entries),
            captions=sum(len(entry["captions"]) for entry in entries),
            shards=[(shard["bytes"], shard["sha256"]) for shard in writer.finished],
            lines=map(index_line, entries),
        )
    skipped.sort(key=lambda record: record["position"])
    write_index_and_manifest(area.dataset, described, splits, skipped, dropped)
