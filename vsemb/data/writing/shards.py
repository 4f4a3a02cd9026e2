"""The work area of a dataset that is being written: finished shards, and a journal with which a later run keeps them.

The work area is a directory beside the final path. The finished dataset is published by one rename.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vsemb.data.manifest import shard_name
from vsemb.files import locked, read_text, sha256_bytes, sha256_file, sync, sync_tree, write_json

# Length (8 bytes), checksum of the length (4), checksum of the data (4).
_RECORD_OVERHEAD = 16
_DATA_BEGINS = 12


class WorkArea:
    """`.NAME.partial` beside the dataset `NAME`.

    It holds `plan.json` (source and options), `journal/` (one file per finished shard) and `dataset/` (renamed to
    `NAME` at the end). A run with the same plan continues; a run with another plan starts again.

    Args:
        out: the dataset's final path.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out.parent / f".{out.name}.partial"
        self.dataset = self.root / "dataset"
        self.journal = self.root / "journal"

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that locks the work area for this process.

        Raises:
            DataError: if another process holds it.
        """
        return locked(self.root, f"Another process is writing {self.out}; wait for it or stop it.")

    def begin(self, plan: dict[str, Any]) -> bool:
        """Prepare the work area for `plan`; keep finished shards of the same plan.

        Returns:
            Whether finished shards of another plan were removed.
        """
        file = self.root / "plan.json"
        interrupted = file.exists()
        # A process killed between publishing and removing leaves a plan without a dataset: nothing to continue.
        if interrupted and self.dataset.is_dir():
            with contextlib.suppress(ValueError):
                if json.loads(read_text(file)) == plan:
                    self._remove_unfinished()
                    return False
        changed = interrupted and any(self.journal.glob("*.json"))
        self.clear()
        self.dataset.mkdir()
        self.journal.mkdir()
        write_json(file, plan)
        return changed

    def _remove_unfinished(self) -> None:
        for path in [*self.dataset.glob("*.tmp"), *self.journal.glob(".*.tmp")]:
            path.unlink()

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Return the finished shards of an interrupted run, split name -> journal entries in order, without records.

        A shard counts only if its journal file is undamaged, its own file has the size there, and all shards before it
        count.
        """
        by_split: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.journal.glob("*.json")):
            shard = _undamaged(path)
            if shard is None:
                continue
            shards = by_split.setdefault(shard["split"], [])
            file = self.shard_file(shard["split"], shard["number"])
            if shard["number"] == len(shards) and file is not None and file.stat().st_size == shard["bytes"]:
                del shard["records"]
                shards.append(shard)
        return {split: shards for split, shards in by_split.items() if shards}

    def shard_file(self, split: str, number: int) -> Path | None:
        """Return the file of a finished shard, under its working name or its final one."""
        working = self.dataset / shard_name(split, number)
        if working.exists():
            return working
        return next(self.dataset.glob(f"{split}-{number:05d}-of-*.tfrecord"), None)

    def clear(self) -> None:
        """Remove everything in the work area but the lock."""
        # Remove the plan last: after an interruption here, the next run clears again and keeps no partial work.
        for path in (self.dataset, self.journal, self.root / "old"):
            if path.exists():
                shutil.rmtree(path)
        (self.root / "plan.json").unlink(missing_ok=True)

    def publish(self) -> None:
        """Rename the finished dataset to its final path and remove the work area."""
        sync_tree(self.dataset)
        if self.out.exists():
            os.replace(self.out, self.root / "old")
        os.replace(self.dataset, self.out)
        sync(self.out.parent)
        self.remove()

    def tidy(self, keep: bool) -> None:
        """Clean up after an error: remove unfinished files.

        Args:
            keep: whether to keep finished shards. Without finished shards, everything is removed.
        """
        self._remove_unfinished()
        if not keep or not self.finished():
            self.remove()

    def remove(self) -> None:
        """Remove the work area."""
        shutil.rmtree(self.root, ignore_errors=True)


def example_bytes(entry: dict[str, Any], encoded: bytes | None) -> bytes:
    """Return one image as a serialized `tf.train.Example`; equal content gives equal bytes.

    Args:
        entry: the index entry, including the id.
        encoded: JPEG or PNG bytes, or None for features without images.
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
    # Without `deterministic`, protobuf maps have no defined order.
    return example.SerializeToString(deterministic=True)


class ShardWriter:
    """Write one shard.

    Args:
        path: the file to write.
        number: the shard's number in its split.

    Attributes:
        images: number of images written.
    """

    def __init__(self, path: Path, number: int) -> None:
        import tensorflow as tf

        self.path = path
        self.images = 0
        self._number = number
        self._offset = 0
        self._writer = tf.io.TFRecordWriter(str(path))

    def add(self, entry: dict[str, Any], encoded: bytes | None) -> None:
        """Write an image.

        Args:
            entry: its index entry; shard and offsets are added to it.
            encoded: image bytes or None.
        """
        data = example_bytes(entry, encoded)
        entry |= {"shard": self._number, "offset": self._offset}
        if encoded is not None:
            inside = data.index(encoded) + _DATA_BEGINS
            entry |= {"image_offset": self._offset + inside, "image_bytes": len(encoded)}
        self._writer.write(data)
        self._offset += len(data) + _RECORD_OVERHEAD
        self.images += 1

    def finish(self) -> tuple[int, str]:
        """Close the shard and flush it to the disk.

        Returns:
            Its size in bytes, and its hex SHA-256.

        Raises:
            OSError: if the file is shorter than the data written.
        """
        self.close()
        size = self.path.stat().st_size
        if size != self._offset:
            raise OSError(f"wrote {size} of {self._offset} bytes of {self.path.name}")
        sync(self.path)
        return size, sha256_file(self.path)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _undamaged(path: Path) -> dict[str, Any] | None:
    """Read a journal file; None if it is not as it was written."""
    try:
        shard: dict[str, Any] = json.loads(read_text(path))
        return shard if shard.pop("checksum") == _checksum(shard) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _checksum(shard: dict[str, Any]) -> str:
    return sha256_bytes(json.dumps(shard).encode())


class SplitWriter:
    """Write the shards of one split in order.

    A shard gets its name only when it is complete and on the disk. Its journal file is written after that; it lists
    the outcome of every record since the previous shard.

    Args:
        split: the split's name.
        area: where shards and journal files go.
        images_per_shard: images in a full shard.
        finished: the shards that an earlier run finished, in order, from `WorkArea.finished`.
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
        """The last source position that a finished shard covers, or -1."""
        return self.finished[-1]["last"] if self.finished else -1

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the outcome of every record so far, in source order; finished shards' records come from journals."""
        for number in range(len(self.finished)):
            yield from json.loads(read_text(self._journal(number)))["records"]
        yield from self._records

    def _journal(self, number: int) -> Path:
        return self._area.journal / f"{self.split}-{number:05d}.json"

    def add(self, record: dict[str, Any], encoded: bytes | None) -> None:
        """Write an image, or record that it is left out.

        Args:
            record: the journal record; shard and offsets are added to its `entry`, if it has one.
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
        """Close the current shard, if there is one."""
        if self._writer is None:
            return
        number, path = len(self.finished), self._writer.path
        size, digest = self._writer.finish()
        self._writer = None
        os.replace(path, path.with_suffix(""))
        shard: dict[str, Any] = {"split": self.split, "number": number, "bytes": size, "sha256": digest}
        shard["last"] = self._records[-1]["position"]
        whole = {**shard, "records": self._records}
        write_json(self._journal(number), {**whole, "checksum": _checksum(whole)})
        self.finished.append(shard)
        self._records = []

    def close(self) -> None:
        """Close an unfinished shard; the next run removes its temporary file."""
        if self._writer is not None:
            self._writer.close()
