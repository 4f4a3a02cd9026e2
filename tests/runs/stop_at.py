"""Ending a training in the middle of its second epoch, as Ctrl-C does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import pytest

from vsemb.runs.train import fit_run


class StopAt(keras.callbacks.Callback):
    """Interrupts a training half-way through its second epoch."""

    #: Of an epoch, as far as they are known.
    steps: int = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps = max(batch + 1, self.steps)
        if int(self.model.optimizer.iterations) == int(1.5 * self.steps) > self.steps:
            raise KeyboardInterrupt


@contextmanager
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Trainings in this context end so."""

    def fit(job: Any, *arguments: Any, **options: Any) -> None:
        job.checks = lambda batch_size: [StopAt()]
        fit_run(job, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("vsemb.runs.train.fit_run", fit)
        with pytest.raises(KeyboardInterrupt):
            yield fit
