"""Means of rows of a table, for tokens that are composed of several vectors."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.ops.backend import is_portable
from vsemb.ops.tensorflow import tf

Tensor = Any


def mean_rows(table: Tensor, numbers: Tensor) -> Tensor:
    """Average rows of a table, without row 0.

    On TensorFlow, equal lists of rows are averaged once, and padding takes no time. On JAX, compiled functions have
    fixed shapes, so padding is read, too.

    Args:
        table: (rows, dim) float.
        numbers: (..., n) int32, rows to average; 0 = none.

    Returns:
        (..., dim); zero where all numbers are 0.

    Example:

    >>> table = ops.convert_to_tensor([[9.0], [1.0], [3.0]])
    >>> mean_rows(table, ops.convert_to_tensor([[1, 2, 0], [0, 0, 0]])).numpy().tolist()
    [[2.0], [0.0]]
    """
    if keras.backend.backend() == "tensorflow" and not is_portable():
        return _means_of_distinct(table, numbers)
    present = ops.cast(ops.not_equal(numbers, 0), table.dtype)
    counts = ops.maximum(ops.sum(present, axis=-1, keepdims=True), 1)
    return ops.sum(ops.take(table, numbers, axis=0) * present[..., None], axis=-2) / counts


def _means_of_distinct(table: Tensor, numbers: Tensor) -> Tensor:
    *shape, size = ops.shape(numbers)
    distinct, places = unique_rows(tf.reshape(numbers, (-1, size)))
    present = tf.where(distinct > 0)  # (numbers, 2), sorted by row
    rows, chosen = present[:, 0], tf.gather_nd(distinct, present)
    means = tf.sparse.segment_mean(table, chosen, rows, num_segments=tf.shape(distinct)[0])
    return tf.reshape(tf.gather(means, places), (*shape, table.shape[-1]))


def unique_rows(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Find the distinct tokens of a batch on TensorFlow.

    Args:
        tokens: (k,) or (k, n) int.

    Returns:
        distinct: (u,) or (u, n), in the order of their first occurrence.
        places: (k,) int32, the place of each token in `distinct`.
    """
    if len(tokens.shape) == 1:
        return tf.unique(tokens)
    distinct, places = tf.raw_ops.UniqueV2(x=tokens, axis=[0])
    return tf.ensure_shape(distinct, (None, *tokens.shape[1:])), places
