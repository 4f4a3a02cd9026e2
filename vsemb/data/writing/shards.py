"""The files of a dataset while it is written: finished shards, and a journal that lets a later run keep them.

It lies in a directory beside the unfinished dataset, and publishing the dataset is one rename.
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
from vsemb.files import locked, sha256_file, sync, sync_tree, write_json

# Length (8 bytes), checksum of the length (4), checksum of the data (4).
_RECORD_OVERHEAD = 16
_DATA_BEGINS = 12


class WorkArea:
    """`.NAME.partial` beside the dataset `NAME`.

    It holds `plan.json` (source and options), `journal/` (one file per finished shard) and `dataset/`
    (what becomes `NAME`). A run with the same plan continues; with another one starts afresh.

    Args:
        out: the dataset's final path.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out.parent / f".{out.name}.partial"
        self.dataset = self.root / "dataset"
        self.journal = self.root / "journal"

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Holds the work area for one process.

        Raises:
            DataError: if another process holds it.
        """
        return locked(self.root, f"Another process is writing {self.out}; wait for it or stop it.")

    def begin(self, plan: dict[str, Any]) -> bool:
        """Make the work area ready for `plan`; finished shards of the same plan stay.

        Returns:
            Whether there were finished shards of another plan, which are gone.
        """
        file = self.root / "plan.json"
        interrupted = file.exists()
        # Killed between publishing and removing, there is a plan and no dataset: nothing to continue.
        if interrupted and self.dataset.is_dir():
            with contextlib.suppress(ValueError):
                if json.loads(file.read_text(encoding="utf-8")) == plan:
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
        """Return the finished shards of an interrupted run without their records, split name -> shards in order.

        A shard counts only if its file has the size in the journal and all shards before it count.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.journal.glob("*.json")):
            shard = json.loads(path.read_text(encoding="utf-8"))
            shards = found.setdefault(shard["split"], [])
            file = self.shard_file(shard["split"], shard["number"])
            if shard["number"] == len(shards) and file is not None and file.stat().st_size == shard["bytes"]:
                del shard["records"]
                shards.append(shard)
        return {split: shards for split, shards in found.items() if shards}

    def shard_file(self, split: str, number: int) -> Path | None:
        """Return the file of a finished shard, under its working name or its final one."""
        working = self.dataset / shard_name(split, number)
        if working.exists():
            return working
        return next(self.dataset.glob(f"{split}-{number:05d}-of-*.tfrecord"), None)

    def clear(self) -> None:
        """Remove everything in the work area but the lock."""
        # The plan goes last: whatever is interrupted here is cleared again, never taken for finished work.
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
        """After an error: removes what cannot be continued.

        Args:
            keep: whether finished shards stay; without any, everything is removed.
        """
        self._remove_unfinished()
        if not keep or not self.finished():
            self.remove()

    def remove(self) -> None:
        """Remove the work area."""
        shutil.rmtree(self.root, ignore_errors=True)


def example_bytes(entry: dict[str, Any], encoded: bytes | None) -> bytes:
    """Return one image as a serialised `tf.train.Example`, the same bytes for the same content.

    Args:
        entry: the index entry, id included.
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
        """Write an image.

        Args:
            entry: its index entry, which receives here where the image is.
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
        """Bring the shard to the disk.

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
        """Let go of the file."""
        self._writer.close()


class SplitWriter:
    """Writes the shards of one split in order.

    A shard appears under its name only when it is whole and on the disk; its journal file, which lists
    what became of every record of this split up to the shard's last one, is written after that.

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
        """Yield the outcome of every record so far, in source order. Journals have the records of finished shards."""
        for number in range(len(self.finished)):
            yield from json.loads(self._journal(number).read_text(encoding="utf-8"))["records"]
        yield from self._records

    def _journal(self, number: int) -> Path:
        return self._area.journal / f"{self.split}-{number:05d}.json"

    def add(self, record: dict[str, Any], encoded: bytes | None) -> None:
        """Write an image, or notes that it is left out.

        Args:
            record: the journal record; its `entry`, if any, receives here where the image is.
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
        write_json(self._journal(number), {**shard, "records": self._records})
        self.finished.append(shard)
        self._records = []

    def close(self) -> None:
        """Let go of an unfinished shard; its temporary file is left for the next run to remove."""
        if self._writer is not None:
            self._writer.close()
