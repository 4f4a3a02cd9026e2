"""Pooling over time as a layer."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.errors import unknown_name
from vsemb.ops.pooling import masked_last, masked_max, masked_mean, masked_sum

Tensor = Any

POOLINGS = {
    "last": (masked_last,),
    "mean": (masked_mean,),
    "max": (masked_max,),
    "sum": (masked_sum,),
    "mean+max": (masked_mean, masked_max),
}


@keras.saving.register_keras_serializable("vsemb")
class SequencePooling(keras.layers.Layer):
    """Reduces a sequence of states to one vector; padding changes nothing.

    Args:
        pooling: `"last"`, `"mean"`, `"max"`, `"sum"`, or `"mean+max"` (the two concatenated).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, true where a step counts.

    Returns:
        (batch, dim), or (batch, 2 dim) for `"mean+max"`.

    Raises:
        InvalidArgumentError: for an unknown pooling.

    Example:

    >>> SequencePooling("mean")(ops.ones((2, 3, 4)), ops.ones((2, 3), "bool")).shape
    TensorShape([2, 4])
    """

    def __init__(self, pooling: str = "last", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if pooling not in POOLINGS:
            raise unknown_name("pooling", pooling, POOLINGS)
        self.pooling = pooling
        self.supports_masking = True

    def compute_mask(self, *args: Any, **kwargs: Any) -> None:
        """Returns None: what is pooled has no steps left to mask."""

    def call(self, states: Tensor, mask: Tensor) -> Tensor:
        pooled = [pool(states, mask) for pool in POOLINGS[self.pooling]]
        return pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)

    def compute_output_shape(self, states_shape: Any, mask_shape: Any = None) -> tuple[Any, Any]:
        del mask_shape
        return states_shape[0], states_shape[-1] * len(POOLINGS[self.pooling])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pooling": self.pooling}
