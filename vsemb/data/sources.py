"""Image sources of batches: cached features, pixels, or pixels from the workers of a tf.data service.

An image source returns rows of one split: `gather` runs in NumPy on the row numbers of a batch, and `finish` runs in
the tf.data graph.

With a tf.data service, the pairs of a batch are still chosen in this process, in NumPy. Workers receive the positions
of the images in the shards, and the seed of the batch, so every worker makes the same batch, bit for bit. Training with
or without a service, resumed or with a changing number of workers gives the same weights. Batches arrive in any order,
with their step; missing batches are made in this process.

Reference: https://www.tensorflow.org/api_docs/python/tf/data/experimental/service
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
import time
import warnings
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Split
from vsemb.errors import DataError, invalid_argument, one_line, reason_of
from vsemb.image.augmentation import ImageAugmenter
from vsemb.image.decode import decode_images
from vsemb.image.resizing import Resizing
from vsemb.image.views import random_crop_flip, ten_crop_source_size
from vsemb.ops.tensorflow import tf

_DECODE_BATCH = 256
# Number of images of a batch that are read in parallel, and buffer size of each read in bytes.
_READERS, _READ_BYTES = 16, 1 << 16
_JOB_STEPS = 4096
_PREFIX = "grpc://"
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.2
# Maximum number of batches that wait for a late one. Then this process makes the late batch.
_WAITING = 16


class ImageSource:
    """Base of the image sources: images of a split for batches and embedding."""

    @property
    def spec(self) -> tf.TensorSpec:
        """Spec of one gathered row, without the batch axis."""
        raise NotImplementedError

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return the images of the given rows of the split, (len(rows), ...)."""
        raise NotImplementedError

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        """Convert gathered rows to the model's input; `seed` (2,) int32 is None outside training."""
        return images

    @property
    def finishes(self) -> bool:
        """Whether `finish` does something, which then needs TensorFlow."""
        return type(self).finish is not ImageSource.finish

    def stream(self, rows: Iterable[np.ndarray], seeds: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the gathered images of training, batch by batch.

        Args:
            rows: the rows of each batch, (batch,) int64 each.
            seeds: (steps, 2) int32, augmentation seed of each batch, for sources that augment in `stream`.
        """
        yield from map(self.gather, rows)


class FeatureImages(ImageSource):
    """Cached features of a split's images; kept in memory if they fit.

    Args:
        store: the cache.
        split: the split.
        augment: whether training batches read a random view of each image (mirror image or crop), if the cache has
            views.
        memory: maximum bytes of features in memory; larger features are read from disk per batch.
    """

    def __init__(self, store: FeatureStore, split: Split, *, augment: bool = False, memory: int = 4 << 30) -> None:
        self._store = store
        self._ids = split.ids
        self._augment = augment and len(store.training_views) > 0
        self._views = store.views_count if self._augment else 1
        self._features: Any = None
        self._positions: np.ndarray | None = None
        size = store.itemsize if self._augment else 4
        if len(split.ids) * store.dim * self._views * size <= memory:
            self._features = store.views(split.ids) if self._augment else store.rows(split.ids)
        elif not self._augment:
            self._positions = store.positions(split.ids)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._store.dim,), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        if self._augment:
            return _float32(self._stored(rows)[:, 0])
        return self._features[rows] if self._positions is None else self._store.rows_at(self._positions[rows])

    def views(self, rows: np.ndarray) -> np.ndarray:
        """Return all cached views of the given rows of the split, (len(rows), views, dim) float32."""
        return _float32(self._stored(rows))

    def _stored(self, rows: np.ndarray) -> np.ndarray:
        """Return views as they are stored: half the memory of float32 for maps of an inner layer."""
        return self._store.views(self._ids[rows]) if self._features is None else self._features[rows]

    def stream(self, rows: Iterable[np.ndarray], seeds: np.ndarray) -> Iterator[np.ndarray]:
        if not self._augment:
            yield from super().stream(rows, seeds)
            return
        drawn = self._store.training_views
        for batch, seed in zip(rows, seeds, strict=True):
            view = np.random.default_rng(seed).integers(drawn[0], drawn[-1] + 1, len(batch))
            yield _float32(self._stored(batch)[np.arange(len(batch)), view])


def _float32(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float32, copy=False)


class FeatureViews(FeatureImages):
    """All views of a split's images that are cached, (views, dim) per image."""

    def __init__(self, store: FeatureStore, split: Split) -> None:
        super().__init__(store, split, augment=True, memory=0)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._views, self._store.dim), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.views(rows)


class PixelImages(ImageSource):
    """Decoded images of a split, resized to a square; kept in memory if they fit.

    Args:
        split: the split; its images must all decode.
        size: side in pixels.
        augment: whether training batches are randomly cropped and flipped.
        augmenter: further augmentation of training batches; None for none.
        memory: maximum bytes of decoded images in memory; more images are decoded per batch.
        resizing: how a preset resizes images; None for the resizing of other networks.

    Raises:
        DataError: if the dataset has features only, or an image does not decode.
    """

    def __init__(
        self,
        split: Split,
        size: int,
        *,
        augment: bool = False,
        augmenter: ImageAugmenter | None = None,
        memory: int = 1 << 30,
        resizing: Resizing | None = None,
    ) -> None:
        self._split = split
        self._size = size
        self._resizing = resizing
        self._augment = augment
        self._distort = augmenter
        # Crops are cut from slightly larger images, as in the ten-crop protocol.
        self._decoded = ten_crop_source_size(size) if augment else size
        self._pixels: np.ndarray | None = None
        if len(split.ids) * self._decoded**2 * 3 <= memory:
            self._pixels = self._decode_all()

    def _decode_all(self) -> np.ndarray:
        pixels = np.zeros((len(self._split.ids), self._decoded, self._decoded, 3), np.uint8)
        start = 0
        for _, images in self._split.readable(self._split.encoded_images().batch(_DECODE_BATCH)):
            block, valid = decode_images(images, self._decoded, resizing=self._resizing)
            bad = np.flatnonzero(~valid.numpy())
            if len(bad):
                key = self._split.keys[start + bad[0]]
                raise DataError(f"Image {key!r} of split {self._split.name!r} cannot be decoded.")
            pixels[start : start + len(block)] = np.rint(block.numpy())
            start += len(block)
        return pixels

    @property
    def spec(self) -> tf.TensorSpec:
        if self._pixels is None:
            return tf.TensorSpec((), tf.string)
        return tf.TensorSpec((self._decoded, self._decoded, 3), tf.uint8)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        if self._pixels is None:
            return np.array(self._split.read_images(rows), dtype=object)
        return self._pixels[rows]

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        images = self._decode(images) if images.dtype == tf.string else tf.cast(images, tf.float32)
        if seed is not None:
            return self._augmented(images, seed)
        if not self._augment:
            return images
        return tf.image.resize(images, (self._size, self._size), antialias=True)

    def _decode(self, encoded: tf.Tensor) -> tf.Tensor:
        """Decode images in graph to float32 (batch, side, side, 3); an undecodable image is an error."""
        images, valid = decode_images(encoded, self._decoded, resizing=self._resizing)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(valid), ["an image is broken"])]):
            return tf.identity(images)

    def _augmented(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Augment images, integers in 0..255, for training; the dtype stays the same."""
        if self._augment:
            images = random_crop_flip(images, self._size, seed)
        return images if self._distort is None else self._distort(images, seed)


def service_address(address: str) -> str:
    """Check that a dispatcher answers, and return its address.

    Args:
        address: `grpc://host:port`.

    Raises:
        InvalidArgumentError: for an address of another form.
        DataError: if the service does not answer.
    """
    host, _, port = address.removeprefix(_PREFIX).rpartition(":")
    if not address.startswith(_PREFIX) or not host or not port.isdecimal() or int(port) > 65535:
        raise invalid_argument("data_service", address, "grpc://HOST:PORT")
    try:
        # Test the connection here, since TensorFlow retries for an hour.
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise DataError(
            f"No tf.data service answers at {address}: {reason_of(error)}. Start its dispatcher first."
        ) from error
    return address


class ServicePixels(PixelImages):
    """Decoded images of a split from workers of a tf.data service; replaces `PixelImages`.

    Workers must find the dataset's shards under the same paths as this process.

    Args:
        split: the split; its images must all decode.
        size: side in pixels.
        address: address of the dispatcher, `grpc://host:port`.
        augment: whether images are randomly cropped and flipped.
        augmenter: further augmentation; None for none.
        patience: seconds without a batch, after which this process makes batches itself until some arrive again.
        resizing: as in `PixelImages`.

    Attributes:
        made_here: number of batches made in this process because they did not arrive in time.

    Raises:
        InvalidArgumentError: for a malformed address.
        DataError: if the service does not answer, or the dataset has features only.

    Example:

        images = ServicePixels(split, 224, address="grpc://10.0.0.2:5050", augment=True)
        batches = PairBatches(split, images, tokenizer)
    """

    def __init__(
        self,
        split: Split,
        size: int,
        *,
        address: str,
        augment: bool = False,
        augmenter: ImageAugmenter | None = None,
        patience: float = 60.0,
        resizing: Resizing | None = None,
    ) -> None:
        self._address = service_address(address)
        # Keep no images in memory: late batches are decoded one by one.
        super().__init__(split, size, augment=augment, augmenter=augmenter, memory=0, resizing=resizing)
        self._patience = patience
        self.made_here = 0

    @property
    def spec(self) -> tf.TensorSpec:
        """Spec of one image."""
        return tf.TensorSpec((self._size, self._size, 3), tf.uint8)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Decode images in this process, without augmentation."""
        images = super().finish(tf.constant(super().gather(rows)), None)
        return np.rint(images.numpy()).astype(np.uint8)

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        """Convert the output of `stream` to the model's input."""
        return tf.cast(images, tf.float32)

    def stream(self, rows: Iterable[np.ndarray], seeds: np.ndarray) -> Generator[np.ndarray, None, None]:
        """Yield the images, batch by batch.

        Args:
            rows: the rows of each batch, (batch,) int64 each.
            seeds: (steps, 2) int32, augmentation seed of each batch.

        Yields:
            uint8 (batch, size, size, 3), in the order of the steps.
        """
        rest, start = iter(rows), 0
        # The description of a job is one message to the workers, of at most 2 GB, so an epoch is several jobs.
        while block := list(itertools.islice(rest, _JOB_STEPS)):
            yield from self._job(np.stack(block), seeds[start : start + len(block)])
            start += len(block)

    def _job(self, rows: np.ndarray, seeds: np.ndarray) -> Generator[np.ndarray, None, None]:
        arrived = _Arrivals(self._distributed(rows, seeds))
        waiting: dict[int, np.ndarray] = {}
        silent = False  # If True, steps check for batches without waiting.
        try:
            for step in range(len(rows)):
                heard = time.monotonic()
                while step not in waiting and len(waiting) < _WAITING:
                    batch = arrived.next(0.0 if silent else _LOOK_SECONDS)
                    if batch is not None:
                        silent, heard = False, time.monotonic()
                        number, images = batch
                        if number >= step:
                            waiting[number] = images
                    elif arrived.ended or silent:
                        break
                    elif time.monotonic() - heard >= self._patience:
                        silent = True
                        self._warn(f"has sent nothing for {self._patience:.0f} seconds")
                if step in waiting:
                    yield waiting.pop(step)
                else:
                    if arrived.problem:
                        self._warn(f"has stopped ({arrived.problem})")
                        arrived.problem = ""
                    self.made_here += 1
                    yield self._make(tf.constant(super().gather(rows[step])), tf.constant(seeds[step])).numpy()
        finally:
            arrived.close()

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"The tf.data service at {self._address} {what}; images are decoded here meanwhile.", stacklevel=4
        )

    def _make(self, encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Make a batch, as workers do, in uint8: its pixels are integers, and take a quarter of float32's bytes."""
        return self._augmented(tf.cast(tf.round(self._decode(encoded)), tf.uint8), seed)

    def _read(self, places: tf.Tensor) -> tf.Tensor:
        """Read images by the rows of `Split.image_places`, (batch,) string, in graph, since workers run no Python.

        This reads 4,700 images per second of processor time; `Split.read_images` reads 79,000.
        """
        shards = tf.constant([str(shard) for shard in self._split.shards])

        def record(place: tf.Tensor) -> tf.data.Dataset:
            # TensorFlow verifies the record's checksums.
            variant = tf.raw_ops.TFRecordDatasetV2(
                filenames=tf.gather(shards, place[:1]),
                compression_type="",
                buffer_size=_READ_BYTES,
                byte_offsets=place[1:],
            )
            return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.string)).take(1)

        records = tf.data.Dataset.from_tensor_slices(places).interleave(
            record, cycle_length=_READERS, num_parallel_calls=_READERS, deterministic=True
        )
        batch = tf.data.experimental.get_single_element(records.batch(tf.shape(places, tf.int64)[0]))
        return tf.io.parse_example(batch, {"image/encoded": tf.io.FixedLenFeature([], tf.string)})["image/encoded"]

    def _distributed(self, rows: np.ndarray, seeds: np.ndarray) -> tf.data.Dataset:
        @tf.autograph.experimental.do_not_convert
        def make(step: tf.Tensor, seed: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return step, self._make(self._read(places), seed)

        places = self._split.image_places(rows.ravel()).reshape(*rows.shape, 2)
        dataset = tf.data.Dataset.from_tensor_slices((np.arange(len(rows)), seeds.astype(np.int32), places))
        # `_job` restores the order of batches by their steps, so workers need not keep it.
        dataset = dataset.map(make, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        service = tf.data.experimental.service
        return dataset.apply(service.distribute(service.ShardingPolicy.DYNAMIC, self._address))


class _Arrivals:
    """Read a distributed dataset in a thread, because TensorFlow waits for lost workers without a timeout."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self.ended = False
        self.problem = ""
        self._closed = threading.Event()
        # None marks the end.
        self._queue: queue.Queue[tuple[int, np.ndarray] | None] = queue.Queue(maxsize=4)
        thread = threading.Thread(target=self._read, args=(dataset,), name="data-service", daemon=True)
        thread.start()

    def _read(self, dataset: tf.data.Dataset) -> None:
        try:
            for step, images in dataset:
                if not self._put((int(step), images.numpy())):
                    return
        except tf.errors.OpError as error:
            # The message begins with names of TensorFlow's operations.
            self.problem = one_line(str(error.message).rpartition("}} ")[2])
        self._put(None)

    def _put(self, item: tuple[int, np.ndarray] | None) -> bool:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return True
        return False

    def next(self, seconds: float) -> tuple[int, np.ndarray] | None:
        """Return the next batch that arrives, with its step; None after `seconds`, or at the end of the job."""
        if self.ended:
            return None
        try:
            item = self._queue.get(timeout=seconds) if seconds else self._queue.get_nowait()
        except queue.Empty:
            return None
        self.ended = item is None
        return item

    def close(self) -> None:
        """Make the thread end after its current batch."""
        self._closed.set()
