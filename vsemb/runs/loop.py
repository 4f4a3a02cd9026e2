"""The training loop of all tasks: `fit` with selection on validation, logs and exact resume."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from vsemb.data.batches import BatchSource
from vsemb.errors import DataError
from vsemb.files import write_json
from vsemb.recipes.schema import Training
from vsemb.runs.run import BEST, LOGS, METRICS, STATE, STATUS
from vsemb.training import MetricsLog, ProgressBar, SelectBest, StepCallbacks, TrainingState
from vsemb.training.callbacks import RefuseNaN
from vsemb.training.strategies import DistributionContext, FirstWorkerValidation


def fit_run(
    training: Training,
    model: keras.Model,
    batches: BatchSource,
    out: Path,
    info: dict[str, Any],
    *,
    validation: keras.callbacks.Callback,
    monitor: str,
    unit: str,
    checks: Sequence[keras.callbacks.Callback] = (),
    devices: DistributionContext | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
) -> None:
    """Trains a compiled model in its run directory, from where an earlier call stopped.

    Args:
        training: the loop's settings.
        model: the model, built, started and compiled.
        batches: the training batches.
        out: the run directory, as `enter_run` leaves it.
        info: what `enter_run` returned.
        validation: adds the value of `monitor` to an epoch's logs; `shown(logs)`, if it has that, says it as text.
        monitor: what decides which epoch is kept, e.g. `val_recall_sum`; the best value is kept in
            `run.json` under the same name with `best` for `val`.
        unit: what a row of a batch is called, for the progress bar.
        checks: more callbacks, before those that refuse and store.
        devices: what the model was made on; this is called outside of their scope.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.

    Raises:
        DataError: if the loss is not finite any more, or no epoch was measured.
    """
    devices = devices or DistributionContext()
    steps = batches.steps_per_epoch
    select = SelectBest(out / BEST, monitor, patience=training.patience, writes=devices.writes)
    finite = RefuseNaN()
    state = TrainingState(
        out / STATE,
        [select],
        seconds=checkpoint_seconds,
        every_steps=checkpoint_steps,
        devices=devices,
        before_store=finite.check,
    )
    with devices.scope():
        epoch, step = state.restore(model)
    _check_shared(devices, out, epoch, step)
    if (epoch, step) != (0, 0) and devices.writes:
        print(f"going on at epoch {epoch + 1}, step {step} of {steps}", file=sys.stderr)
    shown = getattr(validation, "shown", None)
    if devices.workers > 1:
        validation = FirstWorkerValidation(validation, monitor, devices)
    callbacks: list[keras.callbacks.Callback] = [finite, validation, select]
    if devices.writes:
        callbacks += [
            MetricsLog(out / METRICS, epoch),
            keras.callbacks.TensorBoard(out / LOGS, write_graph=False),
            ProgressBar(steps, batches.batch_size, training.epochs, (epoch, step), unit, shown),
            *checks,
        ]
    callbacks.append(state)
    # The rest of an epoch that was interrupted is a `fit` of its own, see `PairBatches.dataset`.
    parts = [(epoch, step, epoch + 1), (epoch + 1, 0, training.epochs)] if step else []
    try:
        for first, skip, end in parts or [(epoch, 0, training.epochs)]:
            if first >= end or select.out_of_patience(first - 1):
                break
            if first != epoch:
                # With a moving average Keras leaves that in the weights at the end of each `fit`.
                state.restore(model)
            # Not in the scope: what worker 0 alone does there would make variables that all workers share.
            with devices.guarded(), warnings.catch_warnings():
                # Keras does not know how long a distributed dataset is, and an epoch ends with it.
                warnings.filterwarnings("ignore", "Your input ran out of data")
                model.fit(
                    devices.distribute(batches.dataset(first, skip)),
                    epochs=end,
                    initial_epoch=first,
                    callbacks=StepCallbacks(callbacks, model),
                    verbose=0,
                    shuffle=False,
                )
            if model.stop_training:
                break
    finally:
        state.release_signals()
    if select.best is None:
        raise DataError(f"Training ended before an epoch was measured. Remove {out} to start afresh.")
    if devices.writes:
        info |= {
            "status": "finished",
            "best_epoch": select.best_epoch,
            monitor.replace("val_", "best_", 1): select.best,
            "seconds": _seconds(out / METRICS),
        }
        write_json(out / STATUS, info)
    # The others may open the run from here on.
    devices.total(0.0)


def _check_shared(devices: DistributionContext, out: Path, epoch: int, step: int) -> None:
    """Refuses workers that do not see the same run directory."""
    if devices.workers == 1:
        return
    there = [devices.of_first_worker(epoch), devices.of_first_worker(step)]
    if not (out / STATUS).exists() or there != [epoch, step]:
        raise DataError(
            f"Worker {devices.worker} of {devices.workers} does not see in {out} what worker 0 does. Name a "
            "directory of a file system that all workers share with --out."
        )


def _seconds(metrics: Path) -> float:
    """Returns the time of all epochs, those of earlier sessions included."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return round(sum(row["seconds"] for row in rows), 1)
