"""Callbacks that watch a running `fit`: logs, progress, and warnings that it has gone wrong."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
from tqdm import tqdm

from vsemb import losses
from vsemb.errors import DataError
from vsemb.files import replacing

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
    """Appends one JSON line an epoch to a file.

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
        self._bar = tqdm(
            total=self.steps * self.pairs,
            initial=done * self.pairs,
            desc=f"epoch {epoch + 1}/{self.epochs}",
            unit=f" {self.unit}",
            unit_scale=True,
            leave=False,
            disable=None,
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
        print("  ".join(parts), file=sys.stderr, flush=True)

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
