"""Callbacks of `fit`: logs, progress, warnings about failed training, and selection of the best weights."""

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
from vsemb.files import read_bytes, replacing
from vsemb.weights import save_weights

_TOLERANCE = 0.01
# Factor of the recall sum from which a model learns, whatever its loss.
_LEARNS = 1.25
# Number of first steps to ignore, in which a model with random weights also has the loss of a collapsed model.
_EARLY = 100
# Steps between readings of the loss, which wait for the step. It is also read before weights are kept.
_EVERY = 50


class StepCallbacks(keras.callbacks.CallbackList):
    """A list of callbacks that receives the logs of a step as tensors.

    Keras copies all logs to the host first, and therefore waits for each step before it starts the next one.

    Args:
        callbacks: the callbacks.
        model: the model that is trained.

    Example:

        model.fit(batches.dataset(), callbacks=StepCallbacks([state], model))
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], model: keras.Model) -> None:
        super().__init__(list(callbacks), add_history=True, model=model)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Pass on the logs of a step unchanged."""
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs=logs)


class MetricsLog(keras.callbacks.Callback):
    """Append one JSON line per epoch to a file.

    Args:
        path: the file.
        start_epoch: lines of this and later epochs, from an interrupted training, are removed.
    """

    def __init__(self, path: str | os.PathLike[str], start_epoch: int = 0) -> None:
        super().__init__()
        self.path = Path(path)
        self._started = 0.0
        content = read_bytes(self.path) if self.path.exists() else b""
        kept = b"".join(line + b"\n" for line in content.split(b"\n") if _epoch_of(line) < start_epoch)
        if kept != content:
            with replacing(self.path) as temporary:
                temporary.write_bytes(kept)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._started = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        row = {"epoch": epoch, "seconds": round(time.monotonic() - self._started, 2)}
        row |= {name: float(value) for name, value in (logs or {}).items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _epoch_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


@dataclass(eq=False)
class ProgressBar(keras.callbacks.Callback):
    """A progress bar per epoch on a terminal; otherwise one line per epoch.

    Args:
        steps: batches per epoch.
        pairs: pairs per batch.
        epochs: the planned number of epochs.
        start: (epoch, step) where training begins.
        unit: name of a pair.
        shown: function from the logs of an epoch to validation metrics as text; None to show only the loss.
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
        # Reading the loss waits for the step, so it is only read to show it.
        if self._bar.update(self.pairs) and logs:
            self._bar.set_postfix(loss=f"{float(logs['loss']):.4g}", refresh=False)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._bar.close()
        logs = logs or {}
        parts = [f"epoch {epoch + 1}/{self.epochs}", f"loss {float(logs['loss']):.4g}"]
        if self.shown is not None:
            parts.append(self.shown(logs))
        parts.append(f"{time.monotonic() - self._started:.0f} s")
        say("  ".join(parts))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.close()


class CollapseWarning(keras.callbacks.Callback):
    """Warn when the loss of an epoch is still at the value of a collapsed model after 100 steps.

    If all embeddings are equal, losses on hardest negatives are at a saddle point. A longer warm-up or a lower learning
    rate avoids this. The value of the loss is `InBatchLoss.collapsed_value`. A model that learns can pass this value:
    an epoch whose `val_recall_sum` is higher by a quarter has no warning.

    Args:
        batch_size: pairs per batch, over all replicas.
    """

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.collapsed = False
        self._recall = math.inf

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        plateau = losses.get(self.model.loss).collapsed_value(self.batch_size, self.batch_size)
        if not logs:
            return
        plateau *= (self.model.image_weight + self.model.text_weight) / 2
        late = int(self.model.optimizer.iterations.numpy()) >= _EARLY
        before, self._recall = self._recall, float(logs.get("val_recall_sum", math.inf))
        learns = self._recall > _LEARNS * before
        self.collapsed = late and not learns and abs(float(logs["loss"]) - plateau) < _TOLERANCE * plateau
        if self.collapsed:
            say(
                f"warning: the loss is {float(logs['loss']):.3f}, that of a model whose embeddings are one "
                "point. Lower optimizer.learning_rate, or raise loss.negatives.warmup_epochs where there is one."
            )


class RefuseNaN(keras.callbacks.Callback):
    """Stop training when the loss is not finite, before the weights are evaluated or stored; name skipped batches.

    The loss in the logs is the mean of the epoch so far, so it stays NaN after one NaN step. The callback therefore
    reads it only every 50 steps, at the end of an epoch, and before a state is stored (`vsemb.training.TrainingState`
    calls `check`). Put it before callbacks that evaluate, in a `vsemb.training.StepCallbacks`.

    Args:
        named: function of epoch and step, from 0, that names the rows of a batch for the error; None to leave them out.

    Raises:
        DataError: if the loss is not finite, or the loss of all batches of an epoch, with
            `vsemb.training.nonfinite`; the message has the first such step, its rows, and a fix.
    """

    def __init__(self, named: Callable[[int, int], str] | None = None) -> None:
        super().__init__()
        self._named = named
        self.start(0, 0)
        # Losses and numbers of skipped batches since the last check. They are tensors; reading one waits for its step.
        self._seen: list[tuple[Any, Any]] = []

    def start(self, epoch: int, step: int) -> None:
        """Begin at a step of an epoch, both from 0."""
        self._epoch, self._step = epoch, step
        # Of a resumed epoch it is unknown.
        self._skipped: float | None = None if step else 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if epoch != self._epoch:
            self.start(epoch, 0)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if logs and "loss" in logs:
            self._seen.append((logs["loss"], logs.get("skipped", 0.0)))
        self._step += 1
        if len(self._seen) == _EVERY:
            self.check()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._seen and logs and "loss" in logs:
            self._seen.append((logs["loss"], logs.get("skipped", 0.0)))
        self.check()
        if self._skipped and self._skipped >= self._step:
            raise self._refusal(0)

    def _refusal(self, step: int) -> DataError:
        return DataError(
            f"The loss is not finite from epoch {self._epoch + 1}, step {step + 1}{self._rows(step)}. Lower "
            "optimizer.learning_rate, set optimizer.global_clipnorm, or skip such batches with "
            "training.nonfinite=skip; and choose another directory."
        )

    def _rows(self, step: int) -> str:
        return f", of {self._named(self._epoch, step)}" if self._named else ""

    def check(self) -> None:
        """Read the last loss.

        Raises:
            DataError: if the loss is not finite.
        """
        seen, self._seen = self._seen, []
        if not seen:
            return
        before = float(seen[0][1]) if self._skipped is None else self._skipped
        loss, self._skipped = map(float, seen[-1])
        if math.isfinite(loss) and self._skipped == before:
            return
        good = [math.isfinite(float(loss)) and float(skipped) == before for loss, skipped in seen]
        first = self._step - len(seen) + good.index(False)
        if not math.isfinite(loss):
            raise self._refusal(first)
        say(
            f"warning: skipped batches whose loss is not finite: {self._skipped - before:.0f}, the first in epoch "
            f"{self._epoch + 1}, step {first + 1}{self._rows(first)}."
        )


@contextlib.contextmanager
def averaged_weights(model: keras.Model) -> Iterator[None]:
    """Put the optimizer's moving averages in place of the trained weights, within a context.

    Does nothing for an optimizer without `use_ema`, or before its first step.

    Args:
        model: a compiled model.
    """
    optimizer = model.optimizer
    averages = getattr(optimizer, "_model_variables_moving_average", None)
    if not getattr(optimizer, "use_ema", False) or not averages or int(optimizer.iterations.numpy()) == 0:
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
    """Save the weights of the best epoch on validation, or of several, and stop training early.

    It replaces Keras' `ModelCheckpoint` and `EarlyStopping`. Its state can be stored, so that a resumed training stops
    at the same epoch as an uninterrupted one. The file is replaced atomically.

    Args:
        path: the file, ending in `.weights.h5`.
        monitor: the metric; higher is better.
        patience: epochs without a better value before training stops; None for no limit.
        writes: whether this process saves; true for one of several workers.
        keep: number of best epochs to keep; more than one are also saved beside the file, see `kept_weights`.

    Attributes:
        kept: (value, epoch) of the kept epochs, best first.

    Raises:
        DataError: if the logs of an epoch do not contain the metric.
    """

    path: str | os.PathLike[str]
    monitor: str = "val_recall_sum"
    patience: int | None = None
    writes: bool = True
    keep: int = 1

    def __post_init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[float, int]] = []

    @property
    def best(self) -> float | None:
        """Value of the best epoch; None before the first."""
        return self.kept[0][0] if self.kept else None

    @property
    def best_epoch(self) -> int | None:
        """The best epoch, from 0; None before the first."""
        return self.kept[0][1] if self.kept else None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not logs or self.monitor not in logs:
            raise DataError(f"The logs have no {self.monitor!r}; add the validation before SelectBest.")
        value = float(logs[self.monitor])
        worst = self.kept[-1][0] if len(self.kept) == self.keep else -math.inf
        # NaN is never larger, so an epoch with NaN is not kept.
        if value > worst:
            # Sorting is stable, so the earlier of two epochs with equal values is better.
            ranked = sorted([*self.kept, (value, epoch)], key=lambda kept: -kept[0])
            self.kept, dropped = ranked[: self.keep], ranked[self.keep :]
            if self.writes:
                self._save(epoch, [former for _, former in dropped])
        if self.out_of_patience(epoch):
            self.model.stop_training = True

    def _save(self, epoch: int, dropped: Sequence[int]) -> None:
        for former in dropped:
            kept_weights(self.path, former).unlink(missing_ok=True)
        with averaged_weights(self.model):
            if self.best_epoch == epoch:
                save_weights(self.model, self.path)
            if self.keep > 1:
                save_weights(self.model, kept_weights(self.path, epoch))

    def out_of_patience(self, epoch: int) -> bool:
        """Return whether training stops after this epoch."""
        if self.patience is None or self.best_epoch is None:
            return False
        return epoch - self.best_epoch >= self.patience

    def state(self) -> dict[str, Any]:
        """Return the state for `restore`."""
        return {"kept": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore an earlier `state`."""
        self.kept = [(value, epoch) for value, epoch in state["kept"]]


def kept_weights(best: str | os.PathLike[str], epoch: int) -> Path:
    """Return the file of a kept epoch beside the file of the best one.

    Example:

    >>> kept_weights("checkpoints/best.weights.h5", 3).name
    'epoch-3.weights.h5'
    """
    return Path(best).with_name(f"epoch-{epoch}.weights.h5")
