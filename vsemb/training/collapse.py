"""Noticing that a training has gone wrong: collapsed to one point, or not finite any more."""

from __future__ import annotations

import math
import sys
from typing import Any

import keras

from vsemb import losses
from vsemb.errors import DataError

_TOLERANCE = 0.01
# Reading the loss waits for the step, so it is read this often and wherever weights are about to be kept.
_EVERY = 50


class CollapseWarning(keras.callbacks.Callback):
    """Warns when an epoch's loss stays at the value of a collapsed model.

    All embeddings at one point is a saddle of losses on hardest negatives; the cure is a longer warm-up or a smaller
    learning rate. The value is `InBatchLoss.collapsed_value`.

    Args:
        batch_size: pairs per batch, over all replicas.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.collapsed = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        plateau = losses.get(self.model.loss).collapsed_value(self.batch_size, self.batch_size)
        if plateau is None or not logs:
            return
        plateau *= (self.model.image_weight + self.model.text_weight) / 2
        self.collapsed = abs(float(logs["loss"]) - plateau) < _TOLERANCE * plateau
        if self.collapsed:
            print(
                f"warning: the loss is {float(logs['loss']):.3f}, that of a model whose embeddings are one "
                "point. Lower optimizer.learning_rate, or raise loss.negatives.warmup_epochs where there is one.",
                file=sys.stderr,
            )


class RefuseNaN(keras.callbacks.Callback):
    """Ends a training whose loss is not finite, before such weights are measured or stored.

    The loss in the logs is the mean of the epoch so far, which stays NaN once a step was, so reading it now and then is
    enough: every 50 steps, at the end of an epoch before it is measured, and before a state is stored
    (`vsemb.training.TrainingState` calls `check`). Put it before callbacks that measure, in a
    `vsemb.training.StepCallbacks`, which leaves it to callbacks whether a step's loss is read.

    Raises:
        DataError: with what to do.
    """

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0
        self._logs: dict[str, Any] = {}

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._logs = logs or {}
        self._steps += 1
        if self._steps % _EVERY == 0:
            self.check()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._logs = logs or self._logs
        self.check()

    def check(self) -> None:
        """Reads the loss.

        Raises:
            DataError: if it is not finite.
        """
        if "loss" in self._logs and not math.isfinite(float(self._logs["loss"])):
            raise DataError(
                "The loss is not finite any more. Lower optimizer.learning_rate or set optimizer.global_clipnorm, "
                "and choose another --out."
            )
