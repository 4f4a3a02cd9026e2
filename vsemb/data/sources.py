"""Where a batch's images come from: cached features or pixels.

An image source hands out rows of one split: `gather` runs in NumPy on the row numbers of a batch,
`finish` adds what belongs in the tf.data graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.image.augmentation import ImageAugmenter
from vsemb.image.decode import decode_images
from vsemb.image.views import random_crop_flip, ten_crop_source_size

_DECODE_BATCH = 256


class ImageSource:
    """Base of the image sources: what batches and embedding need of a split's images."""

    @property
    def spec(self) -> tf.TensorSpec:
        """Spec of one gathered row, without the batch axis."""
        raise NotImplementedError

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Returns the images of the given rows of the split, (len(rows), ...)."""
        raise NotImplementedError

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        """Turns gathered rows into the model's input; `seed` (2,) int32 is None outside training."""
        del seed
        return images

    def stream(self, rows: np.ndarray, seeds: np.ndarray) -> Iterator[np.ndarray]:
        """Yields the gathered images of one batch after the other.

        Args:
            rows: (steps, batch) int64, the rows of each batch.
            seeds: (steps, 2) int32, of each batch's augmentation, for sources that augment before `finish`.
        """
        del seeds
        yield from map(self.gather, rows)


class FeatureImages(ImageSource):
    """Features of a split's images, from its cache; in memory where they fit.

    Args:
        store: the cache.
        split: the split.
        augment: whether training batches take one of each image's views for training at random (its
            mirror image, or crops), where the cache has those.
        memory: bytes that the features may take; above, each batch reads its rows from disk.
    """

    def __init__(self, store: FeatureStore, split: Split, *, augment: bool = False, memory: int = 4 << 30) -> None:
        self._store = store
        self._ids = split.ids
        self._augment = augment and len(store.training_views) > 0
        self._views = store.views_count if self._augment else 1
        self._features: np.ndarray | None = None
        if len(split.ids) * store.dim * self._views * 4 <= memory:
            self._features = self._read(split.ids)

    def _read(self, ids: np.ndarray) -> np.ndarray:
        if self._augment:
            views = [self._store.views(ids, view) for view in range(self._views)]
            return np.stack(views, axis=1)  # (n, views, dim)
        return self._store.rows(ids)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((*[self._views] * self._augment, self._store.dim), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._read(self._ids[rows]) if self._features is None else self._features[rows]

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        if not self._augment:
            return images
        if seed is None:
            return images[:, 0]
        first, last = self._store.training_views[0], self._store.training_views[-1]
        view = tf.random.stateless_uniform((tf.shape(images)[0],), seed, first, last + 1, tf.int32)
        return tf.gather(images, view, axis=1, batch_dims=1)


class PixelImages(ImageSource):
    """Decoded images of a split, resized to a square; kept in memory where they fit.

    Args:
        split: the split; its images must all decode.
        size: side in pixels.
        augment: whether training batches are randomly cropped and flipped.
        augmenter: what is done to training batches after that, if anything.
        memory: bytes that decoded images may take; above, each batch is decoded anew.

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
    ) -> None:
        self._split = split
        self._size = size
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
        for _, images in self._split.encoded_images().batch(_DECODE_BATCH):
            block, valid = decode_images(images, self._decoded)
            if not (good := valid.numpy()).all():
                key = self._split.keys[start + int(np.argmin(good))]
                raise DataError(f"Image {key!r} of split {self._split.name!r} cannot be decoded.")
            pixels[start : start + len(good)] = np.rint(block.numpy())
            start += len(good)
        return pixels

    @property
    def spec(self) -> tf.TensorSpec:
        if self._pixels is None:
            return tf.TensorSpec((), tf.string)
        return tf.TensorSpec((self._decoded, self._decoded, 3), tf.uint8)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        if self._pixels is None:
            return np.array([self._split.read_image(int(row)) for row in rows], dtype=object)
        return self._pixels[rows]

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        images = decoded(images, self._decoded) if images.dtype == tf.string else tf.cast(images, tf.float32)
        if seed is not None:
            return augmented(images, self._size, seed, crop=self._augment, augmenter=self._distort)
        if not self._augment:
            return images
        return tf.image.resize(images, (self._size, self._size), antialias=True)


def decoded(encoded: tf.Tensor, size: int) -> tf.Tensor:
    """Decodes images, float32 (batch, size, size, 3); in graph, an image that does not decode is an error."""
    images, valid = decode_images(encoded, size)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(valid), ["an image is broken"])]):
        return tf.identity(images)


def augmented(
    images: tf.Tensor, size: int, seed: tf.Tensor, *, crop: bool, augmenter: ImageAugmenter | None
) -> tf.Tensor:
    """Returns images as training sees them.

    Args:
        images: (batch, height, width, 3), whole numbers in 0..255.
        size: height and width of the result.
        seed: int (2,), of the batch.
        crop: whether they are randomly cropped and flipped.
        augmenter: what is done to them after that, if anything.

    Returns:
        (batch, size, size, 3) of the same dtype.
    """
    if crop:
        images = random_crop_flip(images, size, seed)
    return images if augmenter is None else augmenter(images, seed)
