"""A split, features and token ids of noise, which batches are made of."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from vsemb.data.sources import ImageSource
from vsemb.ops.tensorflow import tf

WORDS, FEATURES = 8000, 2048


def noise_split(images: int, texts: Sequence[str]) -> Any:
    """Stands in for a `vsemb.data.store.Split` of images with equally many captions each.

    Args:
        images: number of images.
        texts: captions of all images, in order.
    """
    each = len(texts) // images
    return SimpleNamespace(
        name="noise",
        ids=np.arange(images),
        captions=texts,
        caption_offsets=each * np.arange(images + 1),
        rows_of=lambda captions: captions // each,
    )


class RandomFeatures(ImageSource):
    """An image source of noise."""

    def __init__(self, count: int, dim: int) -> None:
        self.rows = np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec(self.rows.shape[1:], tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]


class RandomTokens:
    """A tokenizer whose captions have the lengths of real ones: about 11 words, from 5 to 40.

    Args:
        words: of the vocabulary.
        length: of all captions, in place of that of real ones.
    """

    def __init__(self, words: int = WORDS, length: int | None = None) -> None:
        self.words, self.length = words, length

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(1)
        lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, len(texts))), 5, 40).astype(np.int64)
        if self.length is not None:
            lengths[:] = self.length
        ids = generator.integers(2, self.words, lengths.sum()).astype(np.int32)
        return ids, np.concatenate([[0], np.cumsum(lengths)])
