"""Noticing that a training has gone wrong: collapsed to one point, or not finite any more."""

from __future__ import annotations

import math
import sys
from typing import Any

import keras

from vsemb.errors import DataError
from vsemb.losses.hinge import HingeLoss

_TOLERANCE = 0.01


class CollapseWarning(keras.callbacks.Callback):
    """Says so when an epoch's loss stays at the value of a collapsed model.

    All embeddings at one point is a saddle of the loss on hardest negatives, at 2 x batch x margin;
    the cure is a longer warm-up or a smaller learning rate.

    Args:
        batch_size: pairs a batch, over all replicas.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.collapsed = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        loss = self.model.loss
        if not isinstance(loss, HingeLoss) or loss.negatives != "hardest" or not logs:
            return
        plateau = loss.collapsed_value(self.batch_size, self.batch_size)
        plateau *= (self.model.image_weight + self.model.text_weight) / 2
        self.collapsed = abs(float(logs["loss"]) - plateau) < _TOLERANCE * plateau
        if self.collapsed:
            print(
                f"warning: the loss is {float(logs['loss']):.3f}, that of a model whose embeddings are one "
                "point. Raise loss.warmup_epochs or lower optimizer.learning_rate.",
                file=sys.stderr,
            )


class RefuseNaN(keras.callbacks.Callback):
    """Ends a training whose loss is not finite, before such weights are measured or stored.

    Put it before `TrainingState`, so that the state on disk is the last one that was sound.

    Raises:
        DataError: at the end of the step, with what to do.
    """

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if logs and not math.isfinite(float(logs["loss"])):
            raise DataError(
                "The loss is not finite any more. Lower optimizer.learning_rate or set optimizer.clip, "
                "and choose another --out."
            )
