"""Writing the TFRecord shards of one split, each with a journal entry that lets a later run keep it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.data.manifest import shard_name
from vsemb.files import sha256_file, write_json

if TYPE_CHECKING:
    import tensorflow as tf

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

        self.images = 0
        self._path = path
        self._number = number
        self._offset = 0
        self._writer: tf.io.TFRecordWriter | None = tf.io.TFRecordWriter(str(path))

    def add(self, entry: dict[str, Any], encoded: bytes | None) -> None:
        """Writes an image.

        Args:
            entry: its index entry, which receives `shard` and `offset` here.
            encoded: image bytes or None.
        """
        assert self._writer is not None
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
        size = self._path.stat().st_size
        if size != self._offset:
            raise OSError(f"wrote {size} of {self._offset} bytes of {self._path.name}")
        with open(self._path, "rb+") as file:
            os.fsync(file.fileno())
        return size, sha256_file(self._path)

    def close(self) -> None:
        """Lets go of the file."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


class SplitWriter:
    """Writes the shards of one split in order.

    A shard appears under its name only when it is whole and on the disk; its journal file, which lists
    what became of every record of this split up to the shard's last one, is written after that.

    Args:
        split: the split's name.
        directory: where shards go.
        journal: where journal files go.
        images_per_shard: images in a full shard.
        finished: the journal entries of shards that an earlier run finished, in order.
    """

    def __init__(
        self,
        split: str,
        directory: Path,
        journal: Path,
        images_per_shard: int,
        finished: list[dict[str, Any]],
    ) -> None:
        self.split = split
        self.finished = finished
        self._directory = directory
        self._journal = journal
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

    def _temporary(self) -> Path:
        return self._directory / f"{shard_name(self.split, len(self.finished))}.tmp"

    def skip(self, record: dict[str, Any]) -> None:
        """Notes a record that is left out."""
        self._records.append(record)

    def add(self, record: dict[str, Any], encoded: bytes | None) -> None:
        """Writes an image.

        Args:
            record: the journal record; its `entry` receives `shard` and `offset` here.
            encoded: image bytes or None.
        """
        if self._writer is None:
            self._writer = ShardWriter(self._temporary(), len(self.finished))
        self._writer.add(record["entry"], encoded)
        self._records.append(record)
        if self._writer.images == self._images_per_shard:
            self.finish_shard()

    def finish_shard(self) -> None:
        """Closes the current shard, if there is one."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        temporary = self._temporary()
        number = len(self.finished)
        size, digest = writer.finish()
        os.replace(temporary, self._directory / shard_name(self.split, number))
        shard = {
            "split": self.split,
            "number": number,
            "bytes": size,
            "sha256": digest,
            "records": self._records,
        }
        write_json(self._journal / f"{self.split}-{number:05d}.json", shard)
        self.finished.append(shard)
        self._records = []

    def close(self) -> None:
        """Lets go of an unfinished shard; its temporary file is left for the next run to remove."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def read_journal(journal: Path, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the finished shards of an interrupted run, split name -> shards in order.

    A shard counts only if its file has the size in the journal and all shards before it count.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(journal.glob("*.json")):
        shard = json.loads(path.read_text(encoding="utf-8"))
        split, number = shard["split"], shard["number"]
        file = shard_file(directory, split, number)
        shards = found.setdefault(split, [])
        if number == len(shards) and file is not None and file.stat().st_size == shard["bytes"]:
            shards.append(shard)
    return {split: shards for split, shards in found.items() if shards}


def shard_file(directory: Path, split: str, number: int) -> Path | None:
    """Returns the file of a finished shard, under its working name or its final one."""
    working = directory / shard_name(split, number)
    if working.exists():
        return working
    return next(iter(directory.glob(f"{split}-{number:05d}-of-*.tfrecord")), None)
