"""Writing the TFRecord shards of one split, each with a journal entry that lets a later run keep it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vsemb.data.manifest import shard_name
from vsemb.data.writing.staging import WorkArea
from vsemb.files import sha256_file, sync, write_json

# Length (8 bytes), checksum of the length (4), checksum of the data (4).
_RECORD_OVERHEAD = 16


def example_bytes(entry: dict[str, Any], encoded: bytes | None) -> bytes:
    """Returns one image as a serialised `tf.train.Example`, the same bytes for the same content.

    Args:
        entry: the index entry, id included.
        encoded: JPEG or PNG bytes, or None where there are only features.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    feature["image/id"].int64_list.value.append(entry["id"])
    feature["image/key"].bytes_list.value.append(entry["key"].encode())
    feature["captions"].bytes_list.value.extend(text.encode() for text in entry["captions"])
    if encoded is not None:
        feature["image/encoded"].bytes_list.value.append(encoded)
        feature["image/height"].int64_list.value.append(entry["height"])
        feature["image/width"].int64_list.value.append(entry["width"])
    if entry["class"] is not None:
        feature["class/name"].bytes_list.value.append(entry["class"].encode())
    if "objects" in entry:
        feature["objects/label"].bytes_list.value.extend(item["label"].encode() for item in entry["objects"])
        feature["objects/box"].float_list.value.extend(float(side) for item in entry["objects"] for side in item["box"])
    # Without `deterministic` the order of a protobuf map is anyone's guess.
    return example.SerializeToString(deterministic=True)


class ShardWriter:
    """Writes one shard.

    Args:
        path: the file to write.
        number: the shard's number in its split.

    Attributes:
        images: how many are in it.
    """

    def __init__(self, path: Path, number: int) -> None:
        import tensorflow as tf

        self.path = path
        self.images = 0
        self._number = number
        self._offset = 0
        self._writer = tf.io.TFRecordWriter(str(path))

    def add(self, entry: dict[str, Any], encoded: bytes | None) -> None:
        """Writes an image.

        Args:
            entry: its index entry, which receives `shard` and `offset` here.
            encoded: image bytes or None.
        """
        entry["shard"], entry["offset"] = self._number, self._offset
        data = example_bytes(entry, encoded)
        self._writer.write(data)
        self._offset += len(data) + _RECORD_OVERHEAD
        self.images += 1

    def finish(self) -> tuple[int, str]:
        """Brings the shard to the disk.

        Returns:
            Its size in bytes, and its hex SHA-256.

        Raises:
            OSError: if less was written than should have been.
        """
        self.close()
        size = self.path.stat().st_size
        if size != self._offset:
            raise OSError(f"wrote {size} of {self._offset} bytes of {self.path.name}")
        sync(self.path)
        return size, sha256_file(self.path)

    def close(self) -> None:
        """Lets go of the file."""
        self._writer.close()


class SplitWriter:
    """Writes the shards of one split in order.

    A shard appears under its name only when it is whole and on the disk; its journal file, which lists
    what became of every record of this split up to the shard's last one, is written after that.

    Args:
        split: the split's name.
        area: where shards and journal files go.
        images_per_shard: images in a full shard.
        finished: the journal entries of shards that an earlier run finished, in order.
    """

    def __init__(self, split: str, area: WorkArea, images_per_shard: int, finished: list[dict[str, Any]]) -> None:
        self.split = split
        self.finished = finished
        self._area = area
        self._images_per_shard = images_per_shard
        self._records: list[dict[str, Any]] = []
        self._writer: ShardWriter | None = None

    @property
    def covered(self) -> int:
        """The last source position that a finished shard covers, -1 if there is none."""
        return self.finished[-1]["records"][-1]["position"] if self.finished else -1

    def records(self) -> list[dict[str, Any]]:
        """Returns what became of every record so far, in source order."""
        return [record for shard in self.finished for record in shard["records"]] + self._records

    def add(self, record: dict[str, Any], encoded: bytes | None) -> None:
        """Writes an image, or notes that it is left out.

        Args:
            record: the journal record; its `entry`, if any, receives `shard` and `offset` here.
            encoded: image bytes or None.
        """
        self._records.append(record)
        if record["entry"] is None:
            return
        number = len(self.finished)
        if self._writer is None:
            self._writer = ShardWriter(self._area.dataset / f"{shard_name(self.split, number)}.tmp", number)
        self._writer.add(record["entry"], encoded)
        if self._writer.images == self._images_per_shard:
            self.finish_shard()

    def finish_shard(self) -> None:
        """Closes the current shard, if there is one."""
        if self._writer is None:
            return
        number, path = len(self.finished), self._writer.path
        size, digest = self._writer.finish()
        self._writer = None
        os.replace(path, path.with_suffix(""))
        shard = {"split": self.split, "number": number, "bytes": size, "sha256": digest, "records": self._records}
        write_json(self._area.journal / f"{self.split}-{number:05d}.json", shard)
        self.finished.append(shard)
        self._records = []

    def close(self) -> None:
        """Lets go of an unfinished shard; its temporary file is left for the next run to remove."""
        if self._writer is not None:
            self._writer.close()
