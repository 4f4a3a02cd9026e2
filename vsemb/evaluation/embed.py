"""Embedding whole splits with a model."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from vsemb.data.batches import image_batches, text_batches
from vsemb.data.sources import ImageSource
from vsemb.models.dual_encoder import DualEncoder


class Embedder:
    """Embeds images and texts of any number, in batches, compiled once.

    `keras.Model.predict` would retrace for every caption length that it meets first.

    Args:
        model: the model; weights that change later are seen.

    Example:

        embedder = Embedder(model)
        texts = embedder.texts(*tokenizer.encode(captions))
    """

    def __init__(self, model: DualEncoder) -> None:
        self.model = model
        self._compiled: dict[str, Any] = {}

    def _run(self, name: str, batches: Any) -> np.ndarray:
        if name not in self._compiled:
            encode = {"image": self.model.encode_images, "text": self.model.encode_texts}[name]
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                encode = tf.function(encode, input_signature=[batches.element_spec[name]])
            self._compiled[name] = encode
        encode = self._compiled[name]
        return np.concatenate([keras.ops.convert_to_numpy(encode(batch[name])) for batch in batches])

    def images(self, images: ImageSource, count: int, batch_size: int = 256) -> np.ndarray:
        """Embeds the first `count` images of a source, in order: (count, dim) float32."""
        return self._run("image", image_batches(images, count, batch_size))

    def texts(self, ids: np.ndarray, offsets: np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Embeds tokenized texts (as `Tokenizer.encode` returns them), in order.

        Returns:
            (texts, dim) float32.
        """
        batches, order = text_batches(ids, offsets, batch_size)
        embedded = self._run("text", batches)
        result = np.empty_like(embedded)
        result[order] = embedded
        return result
