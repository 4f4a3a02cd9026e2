"""Which weights are measured and kept: moving averages, the best epoch, early stopping."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.errors import DataError
from vsemb.files import replacing, require_space


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


@dataclass(eq=False)
class SelectBest(keras.callbacks.Callback):
    """Saves the weights when a validation metric is best, and ends training when it no longer rises.

    Unlike Keras' own pair of callbacks its state can be stored, so that a resumed training stops
    where an uninterrupted one does; and the file is replaced at once, never half-written.

    Args:
        path: the file, ending in `.weights.h5`.
        monitor: the metric; larger is better.
        patience: epochs without a better value before training ends; None trains to the end.
        writes: whether this process saves; of several workers one does.

    Raises:
        DataError: at the end of an epoch whose logs lack the metric.
    """

    path: str | os.PathLike[str]
    monitor: str = "val_recall_sum"
    patience: int | None = None
    writes: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        self.best: float | None = None
        self.best_epoch: int | None = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.monitor not in (logs or {}):
            raise DataError(f"The logs have no {self.monitor!r}; add the validation before SelectBest.")
        value = float((logs or {})[self.monitor])
        # NaN is larger than nothing.
        if value > (-math.inf if self.best is None else self.best):
            self.best, self.best_epoch = value, epoch
            if self.writes:
                with averaged_weights(self.model):
                    save_weights(self.model, self.path)
        if self.out_of_patience(epoch):
            self.model.stop_training = True

    def out_of_patience(self, epoch: int) -> bool:
        """Returns whether training ends with this epoch."""
        if self.patience is None or self.best_epoch is None:
            return False
        return epoch - self.best_epoch >= self.patience

    def state(self) -> dict[str, Any]:
        """Returns what `restore` takes."""
        return {"best": self.best, "best_epoch": self.best_epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes back to an earlier `state`."""
        self.best, self.best_epoch = state["best"], state["best_epoch"]


def save_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a model's weights, whole or not at all.

    Args:
        model: the model, compiled or not.
        path: the file, ending in `.weights.h5`.

    Raises:
        DataError: if there is no space.
    """
    with replacing(path) as temporary:
        require_space(temporary, _size(model))
        # Keras insists on the ending.
        named = temporary.with_name(f"{temporary.name}.weights.h5")
        try:
            model.save_weights(named)
            os.replace(named, temporary)
        finally:
            named.unlink(missing_ok=True)


def _size(model: keras.Model) -> int:
    # Keras puts the optimizer's variables into the file too; HDF5 adds little.
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *([] if optimizer is None else optimizer.variables)]
    return sum(math.prod(variable.shape) * 4 for variable in variables) + (1 << 20)
