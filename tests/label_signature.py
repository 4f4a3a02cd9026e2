"""A signature as a system adds one: images scored against named vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

NAMES = ("red circle", "blue square")


class Labels:
    """Gives `labels` string (batch, c), `scores` float32 (batch, c) and `valid` for `image_bytes`.

    Args:
        vectors: (c, dim) float32.
        names: c of them.
    """

    def __init__(self, vectors: np.ndarray, names: tuple[str, ...] = NAMES) -> None:
        self.vectors, self.names = vectors, names

    @classmethod
    def of(cls, index: Any) -> Labels:
        """Two labels, whose vectors are the first two of an index."""
        return cls(np.array(index.embeddings[:2], np.float32))

    def signature(self, served: Any) -> Any:
        """For `extras` of a `ServedModel`."""
        from vsemb.exporting import Signature
        from vsemb.exporting.signatures import score_scale

        images = served.image

        def rows(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            found = images.rows(image_bytes=image_bytes)
            scores = tf.where(found["valid"][:, None], tf.matmul(found["embedding"], self.vectors.T), 0.0)
            labels = tf.tile(tf.constant([self.names], tf.string), [tf.shape(scores)[0], 1])
            return {"labels": labels, "scores": scores, "valid": found["valid"]}

        def scale() -> dict[str, float]:
            return score_scale(images, self.vectors)

        return Signature("label", images.inputs, rows, images.examples, scale, limits=("It knows two labels.",))
