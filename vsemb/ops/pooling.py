"""From the states of a sequence to one vector, ignoring padding."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

# A finite stand-in for minus infinity: -inf times a zero gradient is NaN.
_LOWEST = -1e30


def _weights(states: Tensor, mask: Tensor) -> Tensor:
    return ops.expand_dims(ops.cast(mask, states.dtype), -1)


def masked_sum(states: Tensor, mask: Tensor) -> Tensor:
    """Sums the states of the unmasked steps.

    Args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, true where a step counts.

    Returns:
        (batch, dim); zero for a row without steps.
    """
    return ops.sum(states * _weights(states, mask), axis=1)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Averages the states of the unmasked steps; shapes as `masked_sum`."""
    count = ops.maximum(ops.sum(_weights(states, mask), axis=1), 1)
    return masked_sum(states, mask) / count


def masked_max(states: Tensor, mask: Tensor) -> Tensor:
    """Takes the largest value of each dimension over the unmasked steps; shapes as `masked_sum`."""
    keep = ops.expand_dims(ops.cast(mask, "bool"), -1)
    lowest = ops.cast(_LOWEST, states.dtype)
    # `initial`, since Keras refuses the maximum of nothing: a batch without rows, or rows without steps.
    best = ops.max(ops.where(keep, states, lowest), axis=1, initial=_LOWEST)
    return ops.where(ops.any(keep, axis=1), best, ops.zeros_like(best))


def masked_last(states: Tensor, mask: Tensor) -> Tensor:
    """Takes the state of the last unmasked step; shapes as `masked_sum`.

    Example:

    >>> from keras import ops
    >>> states = ops.convert_to_tensor([[[1.0], [2.0], [9.0]]])
    >>> float(masked_last(states, ops.convert_to_tensor([[True, True, False]]))[0, 0])
    2.0
    """
    steps = ops.shape(states)[1]
    number = ops.arange(1, steps + 1, dtype="int32")  # (steps,)
    last = ops.where(ops.cast(mask, "bool"), number, 0)
    last = ops.max(last, axis=1, keepdims=True, initial=0)  # (batch, 1)
    chosen = ops.cast(ops.equal(number, last), states.dtype)  # (batch, steps), all zero for an empty row
    return ops.sum(states * ops.expand_dims(chosen, -1), axis=1)
