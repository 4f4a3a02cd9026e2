"""Counting ranks; nothing is ever sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from vsemb.ops.compilation import compiled

Tensor = Any

# From so many scores on, compiling the count is worth its time.
_COMPILED = 1 << 21


def best_positive(scores: Tensor, positive: Tensor) -> Tensor:
    """Returns each query's best score among its own positives, (queries, 1)."""
    lowest = ops.cast(-float("inf"), scores.dtype)
    return ops.max(ops.where(positive, scores, lowest), axis=1, keepdims=True)


def ranks(scores: Tensor, positive: Tensor) -> Tensor:
    """Counts, per query, the candidates ahead of its best positive.

    A candidate is ahead if it is no positive of the query and scores at least as high, so that ties
    count against the model and a constant model looks as bad as it is.

    Args:
        scores: (queries, candidates) float, higher is better.
        positive: (queries, candidates) bool, at least one true a row.

    Returns:
        (queries,) int32, 0 is best.

    Example: 0.7 is behind the positive 0.8, the tied 0.8 and 0.9 are ahead.

    >>> scores, positive = [[0.8, 0.7, 0.8, 0.9]], [[True, False, False, False]]
    >>> int(ranks(ops.convert_to_tensor(scores), ops.convert_to_tensor(positive))[0])
    2
    """
    ahead = ops.greater_equal(scores, best_positive(scores, positive))
    return ops.sum(ops.cast(ops.logical_and(ahead, ops.logical_not(positive)), "int32"), axis=1)


def count_reaching(scores: Tensor, least: Tensor, axis: int) -> Tensor:
    """Counts the scores of each row or column that are at least a number of its own.

    Args:
        scores: (rows, columns) float.
        least: (rows, 1) or (1, columns) of the same dtype.
        axis: 1 to count in rows, 0 in columns.

    Returns:
        (rows,) or (columns,) int32.

    Example:

    >>> scores = ops.convert_to_tensor([[0.1, 0.5], [0.5, 0.5]])
    >>> print(ops.convert_to_numpy(count_reaching(scores, [[0.2], [0.5]], axis=1)))
    [1 2]
    """
    least = ops.convert_to_tensor(least, scores.dtype)
    many = scores.shape[0] * scores.shape[1] >= _COMPILED
    return (_COUNTS_COMPILED if many else _COUNTS)[axis](scores, least)


def _count_in_columns(scores: Tensor, least: Tensor) -> Tensor:
    return ops.sum(ops.cast(ops.greater_equal(scores, least), "int32"), axis=0)


def _count_in_rows(scores: Tensor, least: Tensor) -> Tensor:
    return ops.sum(ops.cast(ops.greater_equal(scores, least), "int32"), axis=1)


_COUNTS = (_count_in_columns, _count_in_rows)
_COUNTS_COMPILED = tuple(compiled(count) for count in _COUNTS)


def entries(scores: Tensor, rows: Any, columns: Any) -> Any:
    """Returns single scores as a NumPy array.

    Args:
        scores: (rows, columns).
        rows: (n,) int, a NumPy array.
        columns: (n,) int, likewise.

    Example:

    >>> entries(ops.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 1]), np.array([1, 0])).tolist()
    [2.0, 3.0]
    """
    places = ops.convert_to_tensor(rows * np.int64(scores.shape[1]) + columns, "int64")
    return ops.convert_to_numpy(ops.take(ops.reshape(scores, (-1,)), places))
