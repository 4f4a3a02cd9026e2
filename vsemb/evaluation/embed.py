"""Embed whole splits with a model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from vsemb.console import progress
from vsemb.data.batches import image_batches, text_batches
from vsemb.data.sources import ImageSource
from vsemb.errors import DataError, reader_errors, reason_of
from vsemb.models.dual_encoder import DualEncoder
from vsemb.ops.backend import compiled_with

# Maximum bytes of embeddings in memory; larger ones are kept on disk.
_IN_MEMORY = 1 << 28


class Embedder:
    """Embed any number of images and texts in batches; compiled once per model.

    `keras.Model.predict` would retrace the graph for every new caption length.

    A multi-vector model embeds each image and text as a set of vectors. Sets are padded with zeros to the longest.

    Args:
        model: the model; later changes of its weights are used.

    Example:

        embedder = Embedder(model)
        texts = embedder.texts(*tokenizer.encode(captions))
    """

    def __init__(self, model: DualEncoder) -> None:
        self.model = model

    def _run(self, name: str, count: int, batches: Any, order: np.ndarray | None = None) -> np.ndarray:
        """Embed batches; `order` has the position of each row in the result, None for the given order."""
        encode = self._function(name, batches)
        parts: list[np.ndarray] = []
        rows = np.arange(count) if order is None else order
        single: np.ndarray | None = None
        start = 0
        with reader_errors(), progress(desc=f"embed {name}s", total=count, unit=name, leave=False) as bar:
            for batch in batches:
                part = keras.ops.convert_to_numpy(encode(batch[name]))
                if part.ndim == 2:
                    single = _empty((count, part.shape[1]), part.dtype) if single is None else single
                    single[rows[start : start + len(part)]] = part
                    start += len(part)
                else:
                    parts.append(part)
                bar.update(len(part))
        return _padded(parts, rows) if single is None else single

    def _function(self, name: str, batches: Any) -> Callable[[Any], Any]:
        """Return the function that embeds a batch, compiled on first use."""
        encode = getattr(self.model, f"encode_{name}s")
        # In the model's `__dict__`, so that its next embedder need not trace again, and Keras does not track them.
        kept = self.model.__dict__.setdefault("_embedding_functions", {})
        if keras.backend.backend() != "tensorflow":
            return kept.setdefault(name, compiled_with(encode, self.model.variables))
        import tensorflow as tf

        spec = batches.element_spec[name]
        key = name, str(spec)
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
            (count, dim) float32; (count, items, dim) for a multi-vector model.
        """
        rows = np.arange(rows) if isinstance(rows, int) else rows
        return self._run("image", len(rows), image_batches(images, rows, batch_size))

    def texts(self, ids: np.ndarray, offsets: np.ndarray, batch_size: int = 256) -> np.ndarray:
        """Embed tokenized texts (as `Tokenizer.encode` returns them), in order.

        Returns:
            (texts, dim) float32; (texts, items, dim) for a multi-vector model.
        """
        return self._run("text", len(offsets) - 1, *text_batches(ids, offsets, batch_size))


def _empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array to fill; a large one maps an unnamed temporary file, so that it need not fit in memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < _IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            # Reserve the space now: if the disk were full later, a write to mapped memory would kill the process.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError:
            return np.empty(shape, dtype)
        return np.memmap(file, dtype, "r+", shape=shape)


def rows_on_disk(blocks: Iterable[np.ndarray], beside: Path) -> np.ndarray:
    """Concatenate blocks of rows in an unnamed temporary file.

    Args:
        blocks: one or more arrays, float32 (rows, dim) each.
        beside: a path on the disk to use, such as the path of the output file.

    Returns:
        float32 (all rows, dim), memory-mapped.

    Raises:
        DataError: if the disk is full.
    """
    folder = next(parent for parent in beside.absolute().parents if parent.is_dir())
    dim = 0
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for block in blocks:
                file.write(np.ascontiguousarray(block, np.float32).data)
                dim = block.shape[1]
            file.flush()
            return np.memmap(file, np.float32, "r").reshape(-1, dim)
    except OSError as error:
        raise DataError(f"Cannot write to {folder}: {reason_of(error)}.") from error


def _padded(parts: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Concatenate batches of sets in the order of `rows`, padded with zeros to the longest set; empties `parts`."""
    shape = np.max([part.shape[1:] for part in parts], axis=0)
    result = np.zeros((sum(map(len, parts)), *shape), parts[0].dtype)
    start = 0
    # Release each batch after it is copied, so that a split is not in memory twice.
    parts.reverse()
    while parts:
        part = parts.pop()
        place: Any = (rows[start : start + len(part)], *map(slice, part.shape[1:]))
        result[place] = part
        start += len(part)
    return result
