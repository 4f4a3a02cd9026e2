"""Where a batch's regions come from: their cached features."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.systems.regions.regions import RegionStore


class RegionImages(ImageSource):
    """Features of the regions of a split's images, from their cache; read from disk batch by batch.

    Args:
        store: the cache.
        split: the split.
        most: only the first so many regions, of which the whole image is the first; None for all.
    """

    def __init__(self, store: RegionStore, split: Split, most: int | None = None) -> None:
        self._store = store
        self._ids = split.ids
        self._count = store.count if most is None else min(most, store.count)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._count, self._store.dim), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._store.rows(self._ids[rows], self._count)

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        del seed
        return images
