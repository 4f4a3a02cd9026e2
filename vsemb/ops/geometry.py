"""Norms and normalization."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

# Smallest squared norm that is divided by.
_TINY = 1e-12


def l2_normalize(x: Tensor, axis: int = -1) -> Tensor:
    """Scales vectors to unit Euclidean length; a zero vector stays zero.

    Computed in float32 for inputs of any dtype, since a bfloat16 sum of squares is off by up to
    1 %, and the result is what is stored, compared and served. The clamp is on the squared norm, so
    that the gradient at zero is finite.

    Args:
        x: (..., dim) any float dtype.
        axis: the axis of the vectors.

    Returns:
        float32, the shape of `x`.

    Example:

    >>> [round(float(v), 3) for v in l2_normalize([3.0, 4.0])]
    [0.6, 0.8]
    """
    x = ops.cast(x, "float32")
    squared = ops.sum(ops.square(x), axis=axis, keepdims=True)
    # Not rsqrt, which is rounded otherwise for the last rows of a batch: equal vectors stay equal, and tie.
    return x / ops.sqrt(ops.maximum(squared, _TINY))
