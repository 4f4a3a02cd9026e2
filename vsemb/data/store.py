"""Datasets on disk: `StoredDataset` and its `Split`s. `vsemb.data.writing.writer.write_dataset` writes them."""

from __future__ import annotations

import copy
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vsemb import registry
from vsemb.data.columns import Column, SplitIndex
from vsemb.data.manifest import check_files, ordered_splits, read_manifest
from vsemb.data.records import caption_id
from vsemb.errors import DataError, invalid_argument, reason_of, unknown_name
from vsemb.files import sha256_bytes
from vsemb.parts import path_of
from vsemb.tables import html_table
from vsemb.unicode import composed

if TYPE_CHECKING:
    import tensorflow as tf

_READS = 8
_READERS = ThreadPoolExecutor(_READS, thread_name_prefix="vsemb-shards")


class StoredDataset:
    """A dataset that `vsemb prepare` or `vsemb scenes` wrote.

    Attributes:
        path: its directory.
        name: its name.
        manifest: the parsed `manifest.json`.
        fingerprint: hex digest of the content; it does not depend on the path or the time of writing.
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
        """Open a dataset, after a check of the sizes of its files and the content of its indexes below 128 MiB.

        `vsemb check` also checks the content of larger files.

        Raises:
            DataError: if the dataset is missing, unfinished, damaged or of another version.

        Example:

            dataset = Dataset.open("data/flickr8k")
        """
        path = path_of("path", path)
        manifest = read_manifest(path)
        check_files(path, manifest)
        return cls(path, manifest)

    @classmethod
    def of(cls, data: StoredDataset | str | os.PathLike[str]) -> StoredDataset:
        """Return a dataset that is open, or open it, see `open`."""
        return data if isinstance(data, StoredDataset) else cls.open(data)

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
        """Return an annotation that a system stored in the dataset, such as dependency parses.

        Args:
            name: one of `vsemb.registry.System.annotations`, such as `parses`, `tags` or `attributes`.

        Returns:
            The object that the system's function opens, the same at each call; None if the dataset lacks it.

        Raises:
            InvalidArgumentError: for an unknown name.
            DataError: if the files are damaged or belong to another dataset.
        """
        if name not in self._annotations:
            openers = registry.entries("annotations")
            if name not in openers:
                raise unknown_name("annotation", name, openers)
            self._annotations[name] = registry.load(openers[name])(self)
        return self._annotations[name]

    def forget_annotation(self, name: str) -> None:
        """Make the next `annotation` open the files again, after they were written."""
        self._annotations.pop(name, None)

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """The ids of all images, int64, ascending."""
        return np.sort(np.concatenate([self.split(name).ids for name in self.splits]))

    def name_images(self, ids: np.ndarray) -> str:
        """Name up to five images: `key (id 7)`."""
        keys: dict[int, str] = {}
        for split in map(self.split, self.splits):
            rows = np.flatnonzero(np.isin(split.ids, ids[:5]))
            keys.update(zip(split.ids[rows].tolist(), split.keys[rows], strict=True))
        named = ", ".join(f"{keys.get(image, '?')} (id {image})" for image in ids[:5].tolist())
        return named if len(ids) <= 5 else f"{named} and {len(ids) - 5} more"

    def refuse_undecodable(self, ids: np.ndarray) -> None:
        """Raise an error that names images that do not decode.

        Args:
            ids: their ids, int64.

        Raises:
            DataError: if `ids` is not empty.
        """
        if len(ids):
            raise DataError(f"Images of {self.path} do not decode: {self.name_images(ids)}.")

    def encoded_images(self) -> tf.data.Dataset:
        """Return (id, bytes) of every image, split by split, as `Split.encoded_images` does."""
        parts = (self.split(name).encoded_images() for name in self.splits)
        return functools.reduce(lambda first, second: first.concatenate(second), parts)

    def readable(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches of `encoded_images`, see `Split.readable`."""
        return _readable(batches, self.path)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {self.manifest['splits'][name]['images']}" for name in self.splits)
        return f"<Dataset {self.name!r} at {self.path} ({sizes} images)>"

    def _repr_html_(self) -> str:
        rows = []
        for name in self.splits:
            record = self.manifest["splits"][name]
            rows.append([name, f"{record['images']:,}", f"{record['captions']:,}"])
        return html_table(["split", "images", "captions"], rows, f"{self.name} ({self.path})")


class Split:
    """The images and captions of one split, in index order; a row is a position in that order.

    Its columns are read in place from the memory-mapped index, see `vsemb.data.columns`, so a split of ten million
    images opens as fast as a split of ten.

    Attributes:
        name: e.g. `"train"`.
        keys: n source names.
        captions: m captions, flat, image by image.
        class_names: n class names; None for an image without a class.
        digests: n hex SHA-256 of the images' bytes; None without image bytes.
        objects: for each image a list of objects, each a dictionary with at least `label` and `box`.
        alignments: for each image and each caption, pairs of a word and an object; [] if unknown.
        has_images: whether image bytes are stored (a precomputed dataset has features only).
        dataset: the `Dataset` that opened the split, else None.
    """

    dataset: StoredDataset | None = None

    def __init__(self, path: Path, name: str, record: dict[str, Any]) -> None:
        if not record["images"]:
            raise DataError(f"The split {name!r} of {path} is empty.")
        self.name = name
        self._path = path
        self._shards = [path / shard for shard in record["shards"]]
        self.index = SplitIndex(path / record["index"], record["images"], record["captions"])
        self.class_names: Sequence[str | None] = self.index.class_names
        self.keys, self.digests = self.index.keys, self.index.digests
        self.objects, self.alignments = self.index.objects, self.index.alignments
        self.has_images = self.index.has("width")
        self.captions: Sequence[str] = self.index.captions
        # Caption offsets and places, set only if the captions differ from the index.
        self._chosen: tuple[np.ndarray, np.ndarray | None] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<Split {self.name!r}: {len(self)} images, {len(self.captions)} captions>"

    @functools.cached_property
    def ids(self) -> np.ndarray:
        """Ids of the images, int64 (n,), ascending, unique in the whole dataset.

        Raises:
            DataError: if the index has them out of order.
        """
        ids = self.index.numbers("id")
        if not np.all(ids[1:] > ids[:-1]):
            raise DataError(f"The index {self.index.path} has ids out of order. Prepare the dataset again.")
        return ids

    @property
    def has_classes(self) -> bool:
        """Whether every image has a class."""
        return None not in self.class_names

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Width and height of each image in pixels, int32 (n, 2).

        Raises:
            DataError: if the dataset holds precomputed features only.
        """
        self._need_images()
        return np.stack([self.index.numbers(side) for side in ("width", "height")], axis=1)

    @functools.cached_property
    def _stored_offsets(self) -> np.ndarray:
        offsets = self.index.caption_offsets()
        if not np.all(offsets[1:] > offsets[:-1]):
            raise DataError(f"The index {self.index.path} has an image without a caption. Prepare the dataset again.")
        return offsets

    @property
    def caption_offsets(self) -> np.ndarray:
        """Offsets of each image's captions in `captions`, int64 (n + 1,).

        Raises:
            DataError: if an image has no caption.
        """
        return self._stored_offsets if self._chosen is None else self._chosen[0]

    @property
    def caption_places(self) -> np.ndarray | None:
        """Positions of the captions among all stored captions of the split, int64 (m,).

        None if `with_captions` replaced the captions by other texts.
        """
        return np.arange(len(self.captions)) if self._chosen is None else self._chosen[1]

    @functools.cached_property
    def caption_rows(self) -> np.ndarray:
        """The row of the image that each caption describes, int64 (m,); see also `rows_of`."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.caption_offsets))

    def rows_of(self, captions: np.ndarray) -> np.ndarray:
        """Return the rows of the images that some captions describe.

        Args:
            captions: int64 (...), places in `captions`.
        """
        return np.searchsorted(self.caption_offsets, captions, "right") - 1

    def captions_of(self, row: int | np.integer[Any]) -> list[str]:
        """Return the captions of an image."""
        first, end = self.caption_offsets[row : row + 2].tolist()
        return list(self.captions[first:end])

    def caption_lists(self) -> Iterator[list[str]]:
        """Yield the captions of each image."""
        captions = iter(self.captions)
        for count in np.diff(self.caption_offsets).tolist():
            yield list(itertools.islice(captions, count))

    @property
    def caption_ids(self) -> list[str]:
        """The id of each caption: the source's id, else `KEY#NUMBER`, numbered from 0 per image.

        Raises:
            DataError: if `with_captions` replaced the captions by other texts.
        """
        if self.caption_places is None:
            raise DataError(f"The texts of the split {self.name!r} are not its captions, so they have no ids.")
        counts = np.diff(self._stored_offsets).tolist()
        stored: list[str] = []
        for key, count, own in zip(self.keys, counts, self.index.caption_ids(), strict=True):
            stored += own or (caption_id(key, number) for number in range(count))
        return [stored[place] for place in self.caption_places]

    def class_ids(self) -> tuple[list[str], np.ndarray]:
        """Return the classes of the images.

        Returns:
            names: of the split's classes, sorted.
            ids: int64 (n,), for each image the position of its class in `names`.

        Raises:
            DataError: if an image has no class.
        """
        if not self.has_classes:
            key = self.keys[self.class_names.index(None)]
            raise DataError(
                f"The image {key!r} of the split {self.name!r} of {self._path} has no class. Classes "
                "come from the column `class` of a table, or from a format that has them."
            )
        named = [composed(str(name)) for name in self.class_names]
        names, ids = np.unique(np.array(named, dtype=object), return_inverse=True)
        return names.tolist(), ids.astype(np.int64)

    def with_captions(self, captions: Sequence[Sequence[str]]) -> Split:
        """Return the split with other captions; images, ids and classes are the same.

        Args:
            captions: for each image at least one. If all are stored captions of their images in stored order, for
                example the first two of each image, they keep their ids and parses. Otherwise no caption has them.

        Raises:
            InvalidArgumentError: if an image gets no caption, or the number of lists differs from the images'.
        """
        counts = [len(texts) for texts in captions]
        if len(counts) != len(self) or min(counts) < 1:
            raise invalid_argument("captions", f"{len(counts)} lists", f"{len(self)}, none of them empty")
        texts = [text for own in captions for text in own]
        return self._with(texts, np.cumsum([0, *counts]), self._places_of(captions))

    def first_captions(self, count: int | None) -> Split:
        """Return the split with at most the first `count` captions of each image; None for all.

        Example:

            split.first_captions(1).captions
        """
        if count is None:
            return self
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.minimum(np.diff(self.caption_offsets), count), out=offsets[1:])
        chosen = np.arange(offsets[-1]) + np.repeat(self.caption_offsets[:-1] - offsets[:-1], np.diff(offsets))
        places, texts = self.caption_places, self.captions
        return self._with(
            texts.at(chosen) if isinstance(texts, Column) else [texts[place] for place in chosen],
            offsets,
            None if places is None else places[chosen],
        )

    def _with(self, texts: Sequence[str], offsets: np.ndarray, places: np.ndarray | None) -> Split:
        other = copy.copy(self)
        other.captions, other._chosen = texts, (offsets, places)
        other.__dict__.pop("caption_rows", None)
        return other

    def _places_of(self, captions: Sequence[Sequence[str]]) -> np.ndarray | None:
        """Return the positions of texts among the stored captions; None unless all are found in order."""
        places: list[int] = []
        for first, end, texts in zip(self._stored_offsets, self._stored_offsets[1:], captions, strict=False):
            # Each text is searched behind the one before, since captions of an image may be equal.
            stored, start = self.index.captions[first:end], 0
            for text in texts:
                if text not in stored[start:]:
                    return None
                place = stored.index(text, start)
                places.append(int(first) + place)
                start = place + 1
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

        @tf.autograph.experimental.do_not_convert
        def parse(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            example = tf.io.parse_single_example(serialized, features)
            return example["image/id"], example["image/encoded"]

        shards = tf.data.TFRecordDataset([str(shard) for shard in self._shards])
        images = shards.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return images.apply(tf.data.experimental.assert_cardinality(len(self)))

    def readable(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches of `encoded_images`; a TensorFlow error of a damaged shard becomes a one-line `DataError`.

        Raises:
            DataError: if images cannot be read.
        """
        return _readable(batches, self._path)

    @property
    def shards(self) -> list[Path]:
        """The TFRecord files of the images."""
        return [shard.resolve() for shard in self._shards]

    def image_places(self, rows: np.ndarray) -> np.ndarray:
        """Return the shards and offsets of some images.

        Args:
            rows: int64 (k,), in any order, repeats allowed.

        Returns:
            int64 (k, 2): the position of the shard in `shards`, and the byte offset of the image's TFRecord in it.

        Raises:
            DataError: if the dataset holds precomputed features only.
        """
        self._need_images()
        return self.index.gather(("shard", "offset"), rows)

    def read_image(self, row: int) -> bytes:
        """Return the JPEG or PNG bytes of the image at `row`, see `read_images`.

        Raises:
            DataError: if the shard is damaged, or the dataset holds precomputed features only.
            IndexError: if the row does not exist.
        """
        (encoded,) = self.read_images(np.array([range(len(self))[row]]))
        return encoded

    def read_images(self, rows: np.ndarray) -> list[bytes]:
        """Return the JPEG or PNG bytes of some images, after a comparison with the index's SHA-256.

        Args:
            rows: int64 (k,), in any order, repeats allowed.

        Raises:
            DataError: if a shard is missing or damaged, or the dataset holds precomputed features only.
        """
        self._need_images()
        # Threads read in parallel, since reads wait for the disk. Hashing does not hold the interpreter lock.
        parts = _READERS.map(self._read, np.array_split(rows, min(len(rows), _READS)))
        return [encoded for part in parts for encoded in part]

    def _read(self, rows: np.ndarray) -> list[bytes]:
        images = []
        places = self.index.gather(("shard", "image_offset", "image_bytes"), rows)
        for (number, offset, length), digest in zip(places.tolist(), self.digests[rows], strict=True):
            shard = self._shards[number]
            try:
                with open(shard, "rb", buffering=0) as file:
                    images.append(os.pread(file.fileno(), length, offset))
            except OSError as error:
                raise DataError(f"The shard {shard} cannot be read: {reason_of(error)}.") from error
            if len(images[-1]) != length or sha256_bytes(images[-1]) != digest:
                key = self.keys[int(rows[len(images) - 1])]
                raise DataError(f"The shard {shard} is damaged: image {key!r} has other bytes. Run `vsemb check`.")
        return images


def _readable(batches: Iterable[Any], path: Path) -> Iterator[Any]:
    import tensorflow as tf

    try:
        yield from batches
    except tf.errors.OpError as error:
        # The message begins with names of TensorFlow's operations and ends with another one.
        reason = error.message.partition("\n")[0].rpartition("}} ")[2].partition(" [Op:")[0]
        raise DataError(f"Images of {path} cannot be read: {reason}. Run `vsemb check`.") from error
