"""Measuring and saving the moving average of the weights instead of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
from keras import ops


@contextlib.contextmanager
def averaged_weights(model: keras.Model) -> Iterator[None]:
    """Puts the optimizer's moving averages in the place of the trained weights for a while.

    Does nothing for an optimizer without `use_ema`, or before its first step.

    Args:
        model: a compiled model.
    """
    optimizer = model.optimizer
    averages = getattr(optimizer, "_model_variables_moving_average", None)
    if not getattr(optimizer, "use_ema", False) or not averages or int(optimizer.iterations) == 0:
        yield
        return
    weights = optimizer._trainable_variables
    kept = [ops.convert_to_numpy(weight) for weight in weights]
    try:
        for weight, average in zip(weights, averages, strict=True):
            if average is not None:
                weight.assign(average)
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.assign(value)
