"""Reading a dataset on disk: `Dataset` and its `Split`s; `vsemb.data.writing.writer.write_dataset` makes one."""

from __future__ import annotations

import copy
import functools
import json
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vsemb import registry
from vsemb.data.manifest import check_files, ordered_splits, read_manifest
from vsemb.data.records import caption_id
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.files import sha256_bytes
from vsemb.tables import html_table

if TYPE_CHECKING:
    import tensorflow as tf


class Dataset:
    """A dataset that `vsemb prepare` or `vsemb scenes` wrote.

    Attributes:
        path: its directory.
        name: its name.
        manifest: the parsed `manifest.json`.
        fingerprint: hex; equal for equal content, wherever and whenever it was written.
        splits: the names of its splits: train, val, test, then others.

    Example:

    ```python
    dataset = Dataset.open("data/flickr8k")
    split = dataset.split("val")
    print(len(split), "images", len(split.captions), "captions")
    ```
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.name: str = manifest["name"]
        self.fingerprint: str = manifest["fingerprint"]
        self.splits: tuple[str, ...] = tuple(ordered_splits(manifest["splits"]))
        self._open_splits: dict[str, Split] = {}
        self._annotations: dict[str, Any] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a dataset; its index files are verified, its images are not read.

        Raises:
            DataError: if it is missing, unfinished, damaged or of another version.

        Example:

            dataset = Dataset.open("data/flickr8k")
        """
        path = Path(path)
        manifest = read_manifest(path)
        check_files(path, manifest)
        return cls(path, manifest)

    def split(self, name: str) -> Split:
        """Return a split.

        Raises:
            InvalidArgumentError: if the dataset has no such split.
            DataError: if the split is empty or its index is broken.
        """
        if name not in self.manifest["splits"]:
            raise unknown_name("split", name, self.splits)
        if name not in self._open_splits:
            split = Split(self.path, name, self.manifest["splits"][name])
            split.dataset = self
            self._open_splits[name] = split
        return self._open_splits[name]

    def annotation(self, name: str) -> Any:
        """Return what a system keeps of the dataset beside its images and captions, such as dependency trees.

        Args:
            name: one of `vsemb.registry.System.annotations`: `parses`, `tags`, `attributes` and so on.

        Returns:
            What the system opens, each time the same object; None where the dataset has none.

        Raises:
            InvalidArgumentError: for a name that no system has.
            DataError: if the files are damaged or belong to another dataset.
        """
        if name not in self._annotations:
            openers = registry.entries("annotations")
            if name not in openers:
                raise unknown_name("annotation", name, openers)
            self._annotations[name] = registry.load(openers[name])(self)
        return self._annotations[name]

    def forget_annotation(self, name: str) -> None:
        """Let `annotation` open a system's files anew, after they were written."""
        self._annotations.pop(name, None)

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """The ids of all images, int64, ascending."""
        return np.sort(np.concatenate([self.split(name).ids for name in self.splits]))

    def name_images(self, ids: np.ndarray) -> str:
        """Name up to five images: `key (id 7)`."""
        splits = map(self.split, self.splits)
        keys = {
            int(split.ids[row]): split.keys[row]
            for split in splits
            for row in np.flatnonzero(np.isin(split.ids, ids[:5]))
        }
        named = ", ".join(f"{keys.get(int(image), '?')} (id {int(image)})" for image in ids[:5])
        return named + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")

    def refuse_undecodable(self, ids: np.ndarray) -> None:
        """Refuse images that do not decode, by their ids.

        Raises:
            DataError: if there are any.
        """
        if len(ids):
            raise DataError(f"Images of {self.path} do not decode: {self.name_images(ids)}.")

    def encoded_images(self) -> tf.data.Dataset:
        """Return (id, bytes) of every image, as `Split.encoded_images`, of all splits one behind the other."""
        parts = (self.split(name).encoded_images() for name in self.splits)
        return functools.reduce(lambda first, second: first.concatenate(second), parts)

    def readable(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields batches of images; what TensorFlow says of a damaged shard becomes one clear line.

        Raises:
            DataError: if images cannot be read.
        """
        import tensorflow as tf

        try:
            yield from batches
        except tf.errors.OpError as error:
            reason = error.message.splitlines()[0]
            raise DataError(f"Images of {self.path} cannot be read: {reason} Prepare it again.") from error

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {self.manifest['splits'][name]['images']}" for name in self.splits)
        return f"<Dataset {self.name!r} at {self.path} ({sizes} images)>"

    def _repr_html_(self) -> str:
        counts = {name: self.manifest["splits"][name] for name in self.splits}
        rows = [[name, f"{counts[name]['images']:,}", f"{counts[name]['captions']:,}"] for name in self.splits]
        return html_table(["split", "images", "captions"], rows, f"{self.name} ({self.path})")


class Split:
    """The images and captions of one split, in index order; a row is a place in that order.

    Attributes:
        name: e.g. `"train"`.
        entries: the index lines, one dict per image.
        ids: int64 (n,), unique in the whole dataset, ascending.
        keys: n source names.
        captions: m captions, flat, image by image.
        caption_rows: int64 (m,), the row of the image that each caption describes.
        caption_places: int64 (m,), the place of each caption among all that the dataset holds of the split;
            None where other texts stand in place of the captions.
        class_names: n class names; None for an image without a class.
        has_images: whether image bytes are stored (a precomputed dataset has features only).
        dataset: what it is a split of, where a `Dataset` opened it.
    """

    dataset: Dataset | None = None

    def __init__(self, path: Path, name: str, record: dict[str, Any]) -> None:
        self.name = name
        self._path = path
        self._shards = [path / shard for shard in record["shards"]]
        index = path / record["index"]
        try:
            # Not splitlines(): captions may hold U+2028 and friends, which JSON leaves as they are.
            lines = index.read_text(encoding="utf-8").split("\n")
            self.entries: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
            self.ids = np.array([entry["id"] for entry in self.entries], np.int64)
            self.keys: list[str] = [entry["key"] for entry in self.entries]
            self.captions: list[str] = [text for entry in self.entries for text in entry["captions"]]
            counts = [len(entry["captions"]) for entry in self.entries]
            self.class_names: list[str | None] = [entry.get("class") for entry in self.entries]
            self.has_images = all(entry.get("width") for entry in self.entries)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"The index {index} cannot be read: {error!r}.") from error
        if not self.entries:
            raise DataError(f"The split {name!r} of {path} is empty.")
        if (len(self.ids), len(self.captions)) != (record["images"], record["captions"]):
            raise DataError(f"The index {index} does not have the counts in the manifest; prepare it again.")
        if np.any(np.diff(self.ids) <= 0) or min(counts) < 1:
            raise DataError(f"The index {index} has ids out of order or an image without a caption.")
        self.caption_rows = np.repeat(np.arange(len(self.ids), dtype=np.int64), counts)
        self.caption_places: np.ndarray | None = np.arange(len(self.captions), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"<Split {self.name!r}: {len(self)} images, {len(self.captions)} captions>"

    @functools.cached_property
    def _stored_ids(self) -> list[str]:
        """The ids of all captions that the dataset holds of this split, whatever texts this object has."""
        found: list[str] = []
        for entry in self.entries:
            numbered = (caption_id(entry["key"], number) for number in range(len(entry["captions"])))
            found += entry.get("caption_ids") or numbered
        return found

    @property
    def caption_ids(self) -> list[str]:
        """The id of each caption: the source's own where it has one, else `KEY#NUMBER`, from 0 in an image.

        Raises:
            DataError: if other texts stand in place of the captions, see `with_captions`.
        """
        if self.caption_places is None:
            raise DataError(f"The texts of the split {self.name!r} are not its captions, so they have no ids.")
        return [self._stored_ids[place] for place in self.caption_places]

    def class_ids(self) -> tuple[list[str], np.ndarray]:
        """Return the classes of the images.

        Returns:
            names: of the split's classes, by alphabet.
            ids: int64 (n,), for each image the place of its class in `names`.

        Raises:
            DataError: if an image has no class.
        """
        for key, name in zip(self.keys, self.class_names, strict=True):
            if not name:
                raise DataError(
                    f"The image {key!r} of the split {self.name!r} of {self._path} has no class. Classes "
                    "come from the column `class` of a table, or from a format that has them."
                )
        names, ids = np.unique(np.array(self.class_names, dtype=object), return_inverse=True)
        return names.tolist(), ids.astype(np.int64)

    def with_captions(self, captions: Sequence[Sequence[str]]) -> Split:
        """Return the split with other captions; images, ids and classes are the same.

        Args:
            captions: for each image at least one. Where they all are captions of their images, in order, as
                the first two of each are, they keep their ids and parses; other texts have none.

        Raises:
            InvalidArgumentError: if an image gets none, or the number of images is another.
        """
        other = copy.copy(self)
        other.captions = [text for texts in captions for text in texts]
        counts = [len(texts) for texts in captions]
        if len(counts) != len(self) or min(counts) < 1:
            raise invalid_argument("captions", f"{len(counts)} lists", f"{len(self)}, none of them empty")
        other.caption_rows = np.repeat(np.arange(len(self), dtype=np.int64), counts)
        other.caption_places = self._places_of(captions)
        return other

    def _places_of(self, captions: Sequence[Sequence[str]]) -> np.ndarray | None:
        """Find texts among the captions that the dataset holds; None unless all are found in order."""
        places = []
        first = 0
        for entry, texts in zip(self.entries, captions, strict=True):
            at = -1
            for text in texts:
                try:
                    at = entry["captions"].index(text, at + 1)
                except ValueError:
                    return None
                places.append(first + at)
            first += len(entry["captions"])
        return np.array(places, np.int64)

    def _need_images(self) -> None:
        if not self.has_images:
            raise DataError(f"The split {self.name!r} of {self._path} holds no image bytes, only precomputed features.")

    def encoded_images(self) -> tf.data.Dataset:
        """Return (id int64 scalar, JPEG or PNG bytes as a string scalar) for every image, in index order.

        Raises:
            DataError: if the dataset holds precomputed features only.
        """
        import tensorflow as tf

        self._need_images()
        features = {
            "image/id": tf.io.FixedLenFeature([], tf.int64),
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
        }

        def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            example = tf.io.parse_single_example(serialized, features)
            return example["image/id"], example["image/encoded"]

        shards = tf.data.TFRecordDataset([str(shard) for shard in self._shards])
        images = shards.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return images.apply(tf.data.experimental.assert_cardinality(len(self)))

    def image_places(self) -> tuple[list[Path], np.ndarray, np.ndarray]:
        """Return where the images lie.

        Returns:
            shards: their files.
            numbers: int32 (n,), the shard of each image.
            offsets: int64 (n,), where its TFRecord begins in the shard, in bytes.

        Raises:
            DataError: if the dataset holds precomputed features only.
        """
        self._need_images()
        numbers = np.array([entry["shard"] for entry in self.entries], np.int32)
        offsets = np.array([entry["offset"] for entry in self.entries], np.int64)
        return [shard.resolve() for shard in self._shards], numbers, offsets

    def read_image(self, row: int) -> bytes:
        """Return the JPEG or PNG bytes of the image at `row`, checked against the index.

        Raises:
            DataError: if the shard is damaged, or the dataset holds precomputed features only.
            IndexError: if the row does not exist.
        """
        import tensorflow as tf

        self._need_images()
        entry = self.entries[row]
        shard = self._shards[entry["shard"]]
        try:
            with open(shard, "rb") as file:
                file.seek(entry["offset"])
                (length,) = struct.unpack("<Q4x", file.read(12))  # A TFRecord: length, its checksum, the data.
                if length > shard.stat().st_size:
                    raise ValueError("a record longer than the shard")
                example = tf.train.Example.FromString(file.read(length))
            encoded = example.features.feature["image/encoded"].bytes_list.value[0]
        except Exception as error:  # protobuf's DecodeError has no stable base class.
            raise DataError(f"The shard {shard} is damaged at image {entry['key']!r}: {error}.") from error
        if sha256_bytes(encoded) != entry["sha256"]:
            raise DataError(f"The shard {shard} is damaged: image {entry['key']!r} has other bytes.")
        return encoded
