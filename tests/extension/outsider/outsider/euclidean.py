"""A similarity: minus the squared Euclidean distance of embeddings inside the unit ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.parts import Positive
from vsemb.similarities import Similarity


@keras.saving.register_keras_serializable("outsider")
@dataclass(frozen=True)
class Euclidean(Similarity, kind="euclidean"):
    """Minus the squared Euclidean distance.

    Attributes:
        scale: scores are multiplied by it.
    """

    scale: Positive = 1.0

    def normalize(self, embeddings: Any) -> Any:
        embeddings = ops.cast(embeddings, "float32")
        return embeddings / ops.sqrt(1.0 + ops.sum(ops.square(embeddings), axis=-1, keepdims=True))

    def scores(self, images: Any, texts: Any) -> Any:
        squares = ops.sum(ops.square(images), axis=-1)[:, None] + ops.sum(ops.square(texts), axis=-1)[None]
        return self.scale * (2.0 * ops.matmul(images, ops.transpose(texts)) - squares)

    def pair_scores(self, images: Any, texts: Any) -> Any:
        return -self.scale * ops.sum(ops.square(images - texts), axis=-1)
