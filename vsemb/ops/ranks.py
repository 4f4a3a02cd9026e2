"""Counting ranks; nothing is ever sorted."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any


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
