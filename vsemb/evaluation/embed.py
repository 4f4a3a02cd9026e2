"""Embedding of whole splits with a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from vsemb.console import progress
from vsemb.data.batches import image_batches, text_batches
from vsemb.data.sources import ImageSource
from vsemb.models.dual_encoder import DualEncoder


class Embedder:
    """Embed any number of images and texts in batches; compiled once per model.

    `keras.Model.predict` would retrace the graph for every new caption length.

    A model of sets embeds each image and text as several vectors. They are padded with rows of zeros to the longest
    set.

    Args:
        model: the model; later changes of its weights are used.

    Example:

        embedder = Embedder(model)
        texts = embedder.texts(*tokenizer.encode(captions))
    """

    def __init__(self, model: DualEncoder) -> None:
        self.model = model

    def _run(self, name: str, count: int, batches: Any, order: np.ndarray | None = None) -> np.ndarray:
        """Embed batches; `order` says where each row belongs."""
        encode = self._function(name, batches)
        parts = []
        with progress(desc=f"embed {name}s", total=count, unit=name, leave=False) as bar:
            for batch in batches:
                parts.append(keras.ops.convert_to_numpy(encode(batch[name])))
                bar.update(len(parts[-1]))
        return _padded(parts, order)

    def _function(self, name: str, batches: Any) -> Callable[[Any], Any]:
        """Return the function that embeds a batch, compiled at its first use."""
        encode = getattr(self.model, f"encode_{name}s")
        if keras.backend.backend() != "tensorflow":
            return encode
        import tensorflow as tf

        # In the model's `__dict__`, so that its next embedder need not trace again, and Keras does not track them.
        kept = self.model.__dict__.setdefault("_embedding_functions", {})
        key = name, str(spec := batches.element_spec[name])
        if key not in kept:
            kept[key] = tf.function(encode, input_signature=[spec], autograph=False)
        return kept[key]

    def images(self, images: ImageSource, rows: int | np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Embed images of a source, in order.

        Args:
            images: the source.
            rows: (count,) their rows, or a number N for the first N rows.
            batch_size: images per batch.

        Returns:
            (count, dim) float32, of sets (count, items, dim).
        """
        rows = np.arange(rows) if isinstance(rows, int) else rows
        return self._run("image", len(rows), image_batches(images, rows, batch_size))

    def texts(self, ids: np.ndarray, offsets: np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Embed tokenized texts (as `Tokenizer.encode` returns them), in order.

        Returns:
            (texts, dim) float32, of sets (texts, items, dim).
        """
        return self._run("text", len(offsets) - 1, *text_batches(ids, offsets, batch_size))


def _padded(parts: list[np.ndarray], order: np.ndarray | None) -> np.ndarray:
    """Put batches together in order, items beyond a batch's own zeros; empties `parts` as it goes."""
    shape = np.max([part.shape[1:] for part in parts], axis=0)
    result = np.zeros((sum(map(len, parts)), *shape), parts[0].dtype)
    rows = np.arange(len(result)) if order is None else order
    start = 0
    # What is copied is let go, so that no split of sets is in memory twice.
    parts.reverse()
    while parts:
        part = parts.pop()
        result[(rows[start : start + len(part)], *map(slice, part.shape[1:]))] = part
        start += len(part)
    return result
