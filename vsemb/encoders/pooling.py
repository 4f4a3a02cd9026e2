"""Pooling over steps that ignores padding: functions, a layer, and the layers after it."""

from __future__ import annotations

from typing import Any, Literal

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument

Tensor = Any

# A finite stand-in for minus infinity: -inf times a zero gradient is NaN.
_LOWEST = -1e30


def _weights(states: Tensor, mask: Tensor) -> Tensor:
    return ops.expand_dims(ops.cast(mask, states.dtype), -1)


def masked_sum(states: Tensor, mask: Tensor) -> Tensor:
    """Sum the states of the unmasked steps.

    Args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, false for padding.

    Returns:
        (batch, dim); zero for a row without steps.
    """
    return ops.sum(states * _weights(states, mask), axis=1)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Average the states of the unmasked steps; shapes as `masked_sum`."""
    count = ops.maximum(ops.sum(_weights(states, mask), axis=1), 1)
    return masked_sum(states, mask) / count


def masked_max(states: Tensor, mask: Tensor) -> Tensor:
    """Take the largest value of each dimension over the unmasked steps; shapes as `masked_sum`."""
    keep = ops.expand_dims(ops.cast(mask, "bool"), -1)
    lowest = ops.cast(_LOWEST, states.dtype)
    # `initial`, since Keras refuses the maximum of nothing: a batch without rows, or rows without steps.
    best = ops.max(ops.where(keep, states, lowest), axis=1, initial=_LOWEST)
    return ops.where(ops.any(keep, axis=1), best, ops.zeros_like(best))


def masked_last(states: Tensor, mask: Tensor) -> Tensor:
    """Take the state of the last unmasked step; shapes as `masked_sum`.

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


def step_terms(states: Tensor, mask: Tensor, pooling: str, projection: keras.layers.Layer | None) -> Tensor:
    """Split the sum or mean of states, linearly mapped, into a term per step.

    Args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, false for padding.
        pooling: `sum` or `mean`.
        projection: the linear map; each step has an equal part of its bias. None for no map.

    Returns:
        (batch, steps, projected dim), zero for padding; their sum over the steps is the embedding.

    Raises:
        InvalidArgumentError: for another pooling, whose result is not a sum over steps.
    """
    if pooling not in ("sum", "mean"):
        raise invalid_argument("pooling", pooling, "sum or mean", "Only these are a sum over the steps of a text.")
    weights = ops.expand_dims(ops.cast(mask, states.dtype), -1)
    count = ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)
    scaled = states if pooling == "mean" else states * count
    return weights * (scaled if projection is None else projection(scaled)) / count


#: Of the states of words; `mean+max` is both, side by side.
Pooling = Literal["last", "mean", "max", "sum", "mean+max"]

POOLINGS = {
    "last": (masked_last,),
    "mean": (masked_mean,),
    "max": (masked_max,),
    "sum": (masked_sum,),
    "mean+max": (masked_mean, masked_max),
}


@keras.saving.register_keras_serializable("vsemb")
class SequencePooling(Configured, keras.layers.Layer):
    """Reduce a sequence of states to one vector, without padding.

    Args:
        pooling: `"last"`, `"mean"`, `"max"`, `"sum"`, or `"mean+max"` (the two concatenated).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, false for padding.

    Returns:
        (batch, dim), or (batch, 2 dim) for `"mean+max"`.

    Raises:
        InvalidArgumentError: for an unknown pooling.

    Example:

    >>> SequencePooling("mean")(ops.ones((2, 3, 4)), ops.ones((2, 3), "bool")).shape
    TensorShape([2, 4])
    """

    def __init__(self, pooling: Pooling = "last", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.supports_masking = True

    def build(self, states_shape: Any, mask_shape: Any = None) -> None:
        """Do nothing: the layer has no weights."""

    def compute_mask(self, *args: Any, **kwargs: Any) -> None:
        """Return None: the output has no steps to mask."""

    def call(self, states: Tensor, mask: Tensor) -> Tensor:
        pooled = [pool(states, mask) for pool in POOLINGS[self.pooling]]
        return pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)

    def of_words(self, states: Tensor, rows: Tensor, count: int | Tensor) -> Tensor:
        """Pool the states of words without padding, (words, dim), by their rows, (words,) from 0 to `count` - 1."""
        words = ops.segment_sum(ops.ones_like(states[:, :1]), rows, count)
        sums = {
            "sum": lambda: ops.segment_sum(states, rows, count),
            "mean": lambda: ops.segment_sum(states, rows, count) / ops.maximum(words, 1),
            "max": lambda: ops.where(words > 0, ops.segment_max(states, rows, count), 0),
        }
        return ops.concatenate([sums[name]() for name in self.pooling.split("+")], axis=-1)

    def compute_output_shape(self, states_shape: Any, mask_shape: Any = None) -> tuple[Any, Any]:
        return states_shape[0], states_shape[-1] * len(POOLINGS[self.pooling])


class PooledSentenceEncoder(Configured, keras.layers.Layer):
    """Base of layers from token ids to (batch, dim) that pool the states of words.

    A subclass has the attributes `pooling`, `dropout` and `dim`; `dim` is None for the size of the pooled states.
    """

    dim: Any
    _pool: Any
    projection: Any

    def add_head(self, size: int, pool: keras.layers.Layer | None = None) -> None:
        """Make the layers after the states; if sizes differ, the last one is a linear map to `dim`.

        Args:
            size: size of a state.
            pool: layer that pools states with a pooling that is not one of `POOLINGS`; None if the subclass pools them.
        """
        own = self.pooling not in POOLINGS
        self.state_size = size
        self.pooled_size = size if own else size * len(POOLINGS[self.pooling])
        self._pool = pool if own else SequencePooling(self.pooling, dtype=self.dtype_policy)
        self._dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.projection = None
        self.dim = self.dim or self.pooled_size
        if self.pooled_size != self.dim:
            self.projection = keras.layers.Dense(self.dim, dtype=self.dtype_policy, name="projection")

    def head(self, pooled: Tensor, training: bool = False) -> Tensor:
        """Drop entries of pooled states, and maps them to the embedding."""
        pooled = self._dropout_layer(pooled, training=training)
        return pooled if self.projection is None else self.projection(pooled)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim
