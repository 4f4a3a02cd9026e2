"""Callbacks that watch a running `fit`: logs, progress, warnings that it has gone wrong, and which weights are kept."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
from keras import ops

from vsemb import losses
from vsemb.console import progress, say
from vsemb.errors import DataError
from vsemb.files import replacing, require_space

_TOLERANCE = 0.01
# Reading the loss waits for the step, so it is read this often and wherever weights are about to be kept.
_EVERY = 50


class StepCallbacks(keras.callbacks.CallbackList):
    """The callbacks of a `fit`, which get a step's logs as tensors.

    Keras reads every number of them on the host first, and so waits for each step before it starts the next.

    Args:
        callbacks: the callbacks.
        model: the model that is fitted.

    Example:

        model.fit(batches.dataset(), callbacks=StepCallbacks([state], model))
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        super().__init__(list(callbacks), add_history=True, model=model)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Passes the logs of a step on as they are."""
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs=logs)


class MetricsLog(keras.callbacks.Callback):
    """Append one JSON line per epoch to a file.

    Args:
        path: the file.
        start_epoch: lines of this epoch and later ones, left by a training that was stopped, go.
    """

    def __init__(self, path: str | os.PathLike[str], start_epoch: int = 0) -> None:
        super().__init__()
        self.path = Path(path)
        self._started = 0.0
        found = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        kept = "".join(f"{line}\n" for line in found.splitlines() if _epoch_of(line) < start_epoch)
        if kept != found:
            with replacing(self.path) as temporary:
                temporary.write_text(kept, encoding="utf-8")

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._started = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        row = {"epoch": epoch, "seconds": round(time.monotonic() - self._started, 2)}
        row |= {name: float(value) for name, value in (logs or {}).items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _epoch_of(line: str) -> float:
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


@dataclass(eq=False)
class ProgressBar(keras.callbacks.Callback):
    """A bar per epoch on a terminal, and one line per epoch anywhere.

    Args:
        steps: batches per epoch.
        pairs: pairs per batch.
        epochs: the number of epochs planned.
        start: (epoch, step) where training begins.
        unit: what a pair is called.
        shown: from the logs of an epoch to the metrics of validation as text; None shows the loss alone.
    """

    steps: int
    pairs: int
    epochs: int
    start: tuple[int, int] = (0, 0)
    unit: str = "captions"
    shown: Callable[[dict[str, Any]], str] | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._started = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        done = self.start[1] if epoch == self.start[0] else 0
        self._started = time.monotonic()
        self._bar = progress(
            total=self.steps * self.pairs,
            initial=done * self.pairs,
            desc=f"epoch {epoch + 1}/{self.epochs}",
            unit=self.unit,
            unit_scale=True,
            leave=False,
        )

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Reading the loss waits for the step, so it is read only where it is shown.
        if self._bar.update(self.pairs) and logs:
            self._bar.set_postfix(loss=f"{float(logs['loss']):.4g}", refresh=False)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._bar.close()
        logs = logs or {}
        parts = [f"epoch {epoch + 1}/{self.epochs}", f"loss {float(logs['loss']):.4g}"]
        parts += [self.shown(logs)] if self.shown is not None else []
        parts.append(f"{time.monotonic() - self._started:.0f} s")
        say("  ".join(parts))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.close()


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
        if not logs:
            return
        plateau *= (self.model.image_weight + self.model.text_weight) / 2
        self.collapsed = abs(float(logs["loss"]) - plateau) < _TOLERANCE * plateau
        if self.collapsed:
            say(
                f"warning: the loss is {float(logs['loss']):.3f}, that of a model whose embeddings are one "
                "point. Lower optimizer.learning_rate, or raise loss.negatives.warmup_epochs where there is one."
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
        DataError: if the disk is full.
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
