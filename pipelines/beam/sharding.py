"""From examined blocks to the shards of a dataset: plan and write shards.

Ids number the kept images of all splits in source order, and the shards of a split are filled in this order. Both
depend only on the number of kept images per block. Shards can therefore be written on any machine in any order, with
the same bytes as by `vsemb prepare`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.beam import storage
from pipelines.beam.blocks import BlockSummary
from vsemb.data.manifest import shard_name
from vsemb.data.writing.shards import ShardWriter
from vsemb.errors import DataError
from vsemb.files import sha256_bytes


@dataclass(frozen=True)
class Part:
    """Images of a block in a shard.

    Attributes:
        report: path of the block's report.
        first_id: id of the first kept image of the block, of any split.
        skip: number of images of the shard's split to skip at the beginning of the block.
        take: number of images of the split to take after them.
    """

    report: str
    first_id: int
    skip: int
    take: int


@dataclass(frozen=True)
class ShardTask:
    """Shard to write.

    Attributes:
        split: split of the shard.
        number: number of the shard in the split, from 0.
        count: number of shards of the split.
        parts: images of the shard.
        folder: folder of the dataset's files.
        reports: folder of the reports of shards.
    """

    split: str
    number: int
    count: int
    parts: tuple[Part, ...]
    folder: str
    reports: str

    @property
    def path(self) -> str:
        """Path of the shard."""
        return storage.join(self.folder, shard_name(self.split, self.number, self.count))

    @property
    def report(self) -> str:
        """Path of the report about its content, named by the origin of its images; written last."""
        content = [self.split, self.number, self.count, [asdict(part) for part in self.parts]]
        digest = sha256_bytes(json.dumps(content).encode())[:24]
        return storage.join(self.reports, f"{self.split}-{self.number:05d}-{digest}.json")


def plan_shards(summaries: Iterable[BlockSummary], per_shard: int, folder: str, reports: str) -> list[ShardTask]:
    """Assign images to shards.

    Args:
        summaries: summaries of all blocks, in any order.
        per_shard: number of images in a full shard.
        folder: see `ShardTask`.
        reports: see `ShardTask`.

    Returns:
        The shards, in order per split.

    Raises:
        DataError: if a record is malformed, only some images have bytes, or all images are unusable.
    """
    blocks = sorted(summaries, key=lambda block: block.number)
    for block in blocks:
        if block.error is not None:
            raise DataError(block.error)
    parts: dict[str, list[list[Part]]] = {}
    room: dict[str, int] = {}
    first_id = 0
    for block in blocks:
        for split, images in block.kept.items():
            shards = parts.setdefault(split, [])
            skip = 0
            while skip < images:
                if not room.get(split):
                    shards.append([])
                    room[split] = per_shard
                take = min(room[split], images - skip)
                shards[-1].append(Part(block.report, first_id, skip, take))
                room[split] -= take
                skip += take
        first_id += sum(block.kept.values())
    _check_images(blocks)
    if not first_id:
        raise DataError(_nothing_left(blocks))
    return [
        ShardTask(split, number, len(shards), tuple(shard), folder, reports)
        for split, shards in parts.items()
        for number, shard in enumerate(shards)
    ]


def _check_images(blocks: Sequence[BlockSummary]) -> None:
    with_bytes = next((block.with_image for block in blocks if block.with_image), None)
    without = next((block.without_image for block in blocks if block.without_image), None)
    if with_bytes is not None and without is not None:
        raise DataError(
            f"Image {without!r} has no image bytes, and {with_bytes!r} has; all records need them, or none."
        )


def _nothing_left(blocks: Sequence[BlockSummary]) -> str:
    skipped = [item for block in blocks for item in block.skipped]
    if not skipped:
        return "The source holds no images."
    first = skipped[0]
    return f"None of {len(skipped)} images can be used. The first, {first['key']!r}: {first['reason']}."


def write_shard(task: ShardTask) -> str:
    """Write a shard, unless it exists.

    Returns:
        Path of its report: `bytes`, `sha256`, `images`, `captions` and `entries` of the index.

    Raises:
        DataError: if an image changed after its examination.
    """
    name = shard_name(task.split, task.number, task.count)
    if storage.exists(task.report):
        size = storage.read_json(task.report)["bytes"]
        if storage.exists(task.path) and _size(task.path) == size:
            return task.report
    entries: list[dict[str, Any]] = []
    captions = 0
    with storage.writing(task.path) as temporary:
        writer = ShardWriter(temporary, task.number)
        try:
            for part in task.parts:
                report = storage.read_json(part.report)
                with storage.reading(report["images"]) as images:
                    for line, number in _taken(report, task.split, part):
                        images.seek(line["offset"])
                        encoded = images.read(line["length"]) if line["entry"]["width"] is not None else None
                        entry = line["entry"] | {"id": number}
                        if encoded is not None and sha256_bytes(encoded) != entry["sha256"]:
                            raise DataError(
                                f"The image {entry['key']!r} in {report['images']} is not as it was "
                                f"examined; remove {part.report} and run the same command again."
                            )
                        writer.add(entry, encoded)
                        entries.append(entry)
                        captions += len(entry["captions"])
            size, digest = writer.finish()
        finally:
            writer.close()
    report = {"bytes": size, "sha256": digest, "images": len(entries), "captions": captions, "entries": entries}
    storage.write_json(task.report, {"name": name} | report)
    return task.report


def _size(path: str) -> int | None:
    folder, name = path.rsplit("/", 1)
    return storage.listing(folder).get(name)


def _taken(report: dict[str, Any], split: str, part: Part) -> list[tuple[dict[str, Any], int]]:
    """Return the lines of a block for a shard, each with the id of its image."""
    kept = [line for line in report["lines"] if line["entry"] is not None]
    own = [(line, part.first_id + place) for place, line in enumerate(kept) if line["split"] == split]
    return own[part.skip : part.skip + part.take]
