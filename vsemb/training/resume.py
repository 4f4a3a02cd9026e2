"""Stop a training at any step and resume it exactly there.

Batches depend only on (seed, epoch), see `vsemb.data.batches`. Everything else that a step depends on is a variable:
weights, optimizer, seeds of dropout, running metrics. A stored state therefore has these variables, the position (epoch
and step), and the state of the callbacks that select weights.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb.errors import DataError, one_line
from vsemb.files import replacing, require_regular
from vsemb.training.callbacks import SelectBest
from vsemb.training.cluster import handling_signals
from vsemb.training.strategies import DistributionContext


@dataclass(eq=False)
class TrainingState(keras.callbacks.Callback):
    """Store the state of a training regularly and when it is interrupted.

    On SIGINT (Ctrl-C) and SIGTERM, the step in progress ends, the state is stored, and KeyboardInterrupt is raised. A
    second signal interrupts at once. Put this callback last.

    Args:
        path: the file, an `.npz`.
        callbacks: the callbacks whose state is stored too.
        seconds: seconds between stored states within an epoch; default 60. The state is also stored after each epoch.
        every_steps: steps between stored states; replaces `seconds`.
        steps: steps per epoch. After the last step, the state is stored only when the epoch has been evaluated, because
            a training that resumes between the two would have no loss to report. None stores it after any step.
        before_store: called before a state is written; if it raises an error, the last state is kept.
        devices: devices of the training. With several workers, worker 0 writes, all read the same file, and all stop
            if one is interrupted. Training can resume on another number of replicas.

    Example:

        state = TrainingState("state.npz", [select])
        epoch, step = state.restore(model)
        model.fit(batches.dataset(epoch, step), initial_epoch=epoch, callbacks=[select, state])
    """

    path: str | os.PathLike[str]
    callbacks: Sequence[SelectBest] = ()
    _: KW_ONLY
    seconds: float = 60.0
    every_steps: int | None = None
    steps: int | None = None
    devices: DistributionContext = field(default_factory=DistributionContext)
    before_store: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        super().__init__()
        self._position = (0, 0)
        self._metrics: list[np.ndarray] | None = None
        self._stored = time.monotonic()
        self._interrupted = False
        self._signals = contextlib.ExitStack()

    def restore(self, model: keras.Model) -> tuple[int, int]:
        """Load the stored state into a built and compiled model.

        Args:
            model: the model, built from the same recipe as the stored one.

        Returns:
            (epoch, step) to continue with; (0, 0) if nothing is stored.

        Raises:
            DataError: if the file is damaged or belongs to another model.
        """
        if not os.path.exists(self.path):
            return 0, 0
        model.optimizer.build(model.trainable_variables)
        try:
            with np.load(require_regular(self.path), allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                values = [file[f"v{i}"] for i in range(header["variables"])]
                metrics = [file[f"m{i}"] for i in range(header["metrics"])]
        except Exception as error:  # NumPy and zipfile raise many types for a damaged file
            raise DataError(f"The training state {self.path} cannot be read: {one_line(error, 200)}.") from error
        variables = _variables(model)
        shapes, stored = [tuple(v.shape) for v in variables], [v.shape for v in values]
        if shapes != stored or len(header["callbacks"]) != len(self.callbacks):
            raise DataError(f"The training state {self.path} belongs to another model. Remove it to start afresh.")
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        for callback, state in zip(self.callbacks, header["callbacks"], strict=True):
            callback.restore(state)
        self._position = (header["epoch"], header["step"])
        self._metrics = metrics or None
        return self._position

    def store(self) -> None:
        """Write the current state; the file is replaced atomically. All workers must call this method."""
        self.before_store()
        epoch, step = self._position
        variables = _variables(self.model)
        metrics = _metric_variables(self.model) if step else []
        header = {
            "epoch": epoch,
            "step": step,
            "variables": len(variables),
            "metrics": len(metrics),
            "callbacks": [callback.state() for callback in self.callbacks],
        }
        named = {f"v{i}": variable for i, variable in enumerate(variables)}
        named |= {f"m{i}": metric for i, metric in enumerate(metrics)}
        # One after the other, as a large model has no room for copies of all. All workers read metrics, which are sums
        # over them.
        arrays = ((name, ops.convert_to_numpy(variable)) for name, variable in named.items())
        if self.devices.writes:
            with replacing(self.path) as temporary, zipfile.ZipFile(temporary, "w") as file:
                for name, array in itertools.chain([("header", np.array(json.dumps(header)))], arrays):
                    with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, array, allow_pickle=False)
        else:
            collections.deque(arrays, maxlen=0)
        # A barrier: the other workers read the file only after it.
        self.devices.total(0.0)
        self._stored = time.monotonic()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._stored = time.monotonic()
        self._signals.enter_context(handling_signals(self._on_signal))

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        step = self._position[1] if epoch == self._position[0] else 0
        self._position = (epoch, step)
        if self._metrics is not None:
            # `fit` has just reset the running metrics. Restore them, since this epoch began before the interruption.
            for variable, value in zip(_metric_variables(self.model), self._metrics, strict=True):
                variable.assign(value)
            self._metrics = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        epoch, step = self._position
        self._position = (epoch, step + 1)
        if step + 1 == self.steps:
            return
        if self.every_steps is not None:
            due = (step + 1) % self.every_steps == 0
        else:
            due = time.monotonic() - self._stored >= self.seconds
        due, interrupted = self.devices.total(due and self.devices.writes, self._interrupted) > 0
        if due or interrupted:
            self.store()
        if interrupted:
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._position = (epoch + 1, 0)
        self.store()
        if self.devices.total(self._interrupted)[0] > 0:
            raise KeyboardInterrupt

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the earlier signal handlers; must also be called after an exception in `fit`."""
        self._signals.close()


def _variables(model: keras.Model) -> list[Any]:
    """Return all variables that a step reads and writes, without duplicates, in a fixed order."""
    return list({id(v): v for v in [*model.variables, *model.optimizer.variables]}.values())


def _metric_variables(model: keras.Model) -> list[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]
