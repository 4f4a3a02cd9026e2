"""Train a recipe of any task into a run directory: `fit` with selection on validation, logs and exact resume."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from vsemb.console import say
from vsemb.data.batches import BatchSource
from vsemb.errors import DataError, invalid_argument, reader_errors
from vsemb.files import locked, read_json_lines, write_json
from vsemb.recipes.info import untyped
from vsemb.recipes.schema import Job, Recipe
from vsemb.runs.features import with_features
from vsemb.runs.fine_tune import starting_weights
from vsemb.runs.run import BEST, METRICS, RECIPE, STATE, STATUS, Run, check_out, check_same, enter_run
from vsemb.training import MetricsLog, ProgressBar, SelectBest, StepCallbacks, TrainingState
from vsemb.training.callbacks import RefuseNaN
from vsemb.training.logs import Log, TensorBoardLog, settings_of
from vsemb.training.nonfinite import skip_nonfinite
from vsemb.training.strategies import DistributionContext, FirstWorkerValidation, open_distribution

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


def train(
    recipe: Recipe,
    data: Any,
    out: str | os.PathLike[str],
    *,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Run] | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    data_service: str | None = None,
    strategy: str | DistributionContext = "none",
    logs: Sequence[Log] = (TensorBoardLog(),),
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Run:
    """Train a recipe, or resume an interrupted training.

    A finished run continues if the recipe has more epochs than the run was trained for.

    Args:
        recipe: a recipe of any task.
        data: training data from the recipe's `open_data`, or the path of the data.
        out: the run directory.
        backbone: network of the image features, such as `MobileNetV2`; missing features are computed first. Default:
            the existing features of the dataset.
        weights: weights of the backbone, see `vsemb.runs.features.features`. With the weights of a run, `backbone`
            is not needed.
        inputs: runs that the recipe starts from, by name, such as `{"encoder": Run.open("runs/kiros")}`.
        checkpoint_seconds: seconds between stored states.
        checkpoint_steps: steps between stored states; replaces `checkpoint_seconds`.
        data_service: address of a tf.data service, `grpc://host:port`, whose workers decode and augment images. The
            trained run is the same with and without it, see `vsemb.data.sources.ServicePixels`.
        strategy: `none`, `mirrored`, `multiworker`, or a context, see
            `vsemb.training.strategies.open_distribution`.
        logs: where metrics are logged besides metrics.jsonl.
        callbacks: further callbacks of Keras. They see the metrics of the validation; logs of a step are tensors.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for invalid recipes, data or directories; files written before are kept.

    Example:

        run = train(recipes.get("vsepp"), Dataset.open("data/flickr8k"), "runs/vsepp")
    """
    out, inputs = Path(out), dict(inputs or {})
    devices = strategy if isinstance(strategy, DistributionContext) else open_distribution(strategy)
    for name in inputs:
        if name not in recipe.inputs:
            allowed = f"one of {', '.join(recipe.inputs)}" if recipe.inputs else "omitted"
            raise invalid_argument(
                f"inputs.{name}", str(inputs[name].path), f"{allowed} for the recipe {recipe.name!r}"
            )
    devices.check_batch_size(recipe.batch_size)
    if not (out / RECIPE).exists():
        check_out(out)
    if isinstance(data, str | os.PathLike):
        data = recipe.open_data(data)
    if backbone is not None or weights is not None:
        recipe = devices.first_worker_first(lambda: with_features(recipe, data, backbone, weights))
    if data_service is not None and not (recipe.image_tower and recipe.image_tower.from_pixels):
        fix = "Train from pixels with `fine_tune`."
        raise invalid_argument("data_service", data_service, "null for a recipe that decodes no images", fix)
    if keras.backend.backend() != "tensorflow" and recipe.image_tower and recipe.image_tower.from_pixels:
        raise invalid_argument("backend", keras.backend.backend(), "tensorflow for recipes that decode images")
    if (out / RECIPE).exists():
        # Before the data, of which another recipe may lack something.
        check_same(recipe, {}, out)
    job = recipe.prepare(data, out, inputs)
    job.data_service = data_service
    enter = functools.partial(enter_run, recipe, job.info, out, job.vocabulary, job.keep)
    if (out / RECIPE).exists():
        stored = check_same(recipe, job.info, out)
        if stored["status"] == "finished":
            say(f"{out} is finished already. To train it further, name more `epochs`.")
            return _finished(recipe, data, out, devices)
        if "best_epoch" in stored and not (out / STATE).exists():
            # A training from the start would replace its weights.
            raise DataError(
                f"{out} was trained, but lacks {STATE} to continue from. Restore it, or choose another out."
            )
    batches = job.batches()
    unknown = job.unknown_words(batches)
    if devices.writes:
        for line in unknown:
            say(line)
    # A small training set has smaller batches than the recipe.
    devices.check_batch_size(batches.units)
    steps = batches.steps_per_epoch
    with devices.scope():
        with starting_weights(recipe) as starting:
            model = job.model(starting, recipe.training.training_dtype)
        model.compile(
            optimizer=recipe.optimizer.build(steps, recipe.training.epochs),
            loss=job.loss(steps),
            # XLA of TensorFlow compiles anew for every length of the texts.
            jit_compile=keras.backend.backend() != "tensorflow",
        )
        if recipe.training.nonfinite == "skip":
            skip_nonfinite(model)
    # After the model is compiled, so that a failing recipe does not leave a run directory.
    info = devices.first_worker_first(enter)
    busy = f"Another process is training {out}; wait for it, or choose another directory."
    with contextlib.ExitStack() as opened:
        own = list(callbacks)
        if devices.writes:
            opened.enter_context(locked(out / Path(STATE).parent, busy))
            for log in logs:
                own += opened.enter_context(log.opened(out, settings_of(recipe)))
        fit_run(
            job,
            model,
            batches,
            out,
            info,
            devices=devices,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_steps=checkpoint_steps,
            callbacks=own,
        )
    return _finished(recipe, data, out, devices)


def _finished(recipe: Recipe, data: Any, out: Path, devices: DistributionContext) -> Run:
    run = Run.open(out)
    if devices.writes:
        recipe.finish(run, data)
    return run


def fit_run(
    job: Job,
    model: keras.Model,
    batches: BatchSource,
    out: Path,
    info: RunInfo,
    *,
    devices: DistributionContext,
    checkpoint_seconds: float,
    checkpoint_steps: int | None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Train a compiled model in its run directory; resume where an earlier call stopped.

    Args:
        job: job from the recipe's `prepare`. The best value of its `monitor` is stored in `run.json`, with `best`
            instead of `val` in the name.
        model: the built, initialized and compiled model.
        batches: the training batches.
        out: the run directory from `enter_run`.
        info: return value of `enter_run`.
        devices: devices on which the model was made. Call this function outside their scope.
        checkpoint_seconds: as `train`.
        checkpoint_steps: as `train`.
        callbacks: further callbacks.

    Raises:
        DataError: if the loss is no longer finite, or no epoch was measured.
    """
    training, monitor, steps = job.recipe.training, job.monitor, batches.steps_per_epoch
    select = SelectBest(out / BEST, monitor, training.patience, devices.writes, training.keep)
    finite = RefuseNaN(batches.named)
    state = TrainingState(
        out / STATE,
        [select],
        seconds=checkpoint_seconds,
        every_steps=checkpoint_steps,
        steps=steps,
        devices=devices,
        before_store=finite.check,
    )
    with devices.scope():
        epoch, step = state.restore(model)
    finite.start(epoch, step)
    _check_shared(devices, out, epoch, step)
    if (epoch, step) != (0, 0) and devices.writes:
        say(f"Resuming at epoch {epoch + 1}, step {step} of {steps}.")
    validation = job.validation()
    shown = getattr(validation, "shown", None)
    if devices.workers > 1:
        validation = FirstWorkerValidation(validation, monitor, devices)
    used: list[keras.callbacks.Callback] = [finite, validation, select]
    if devices.writes:
        used += [
            MetricsLog(out / METRICS, epoch),
            ProgressBar(steps, batches.batch_size, training.epochs, (epoch, step), job.unit, shown),
            *job.checks(batches.batch_size),
        ]
    used += [*callbacks, state]
    # The rest of an interrupted epoch is a separate `fit`, see `PairBatches.dataset`.
    parts = [(epoch, step, epoch + 1), (epoch + 1, 0, training.epochs)] if step else []
    try:
        for first, skip, end in parts or [(epoch, 0, training.epochs)]:
            if first >= end or select.out_of_patience(first - 1):
                break
            if first != epoch:
                # At the end of each `fit`, Keras replaces the weights by their moving average, if there is one.
                state.restore(model)
            # Outside the scope: inside it, operations of worker 0 alone would create variables shared by all workers.
            with devices.guarded(), reader_errors(), warnings.catch_warnings():
                # The length of a distributed dataset is unknown to Keras. An epoch ends with the dataset.
                warnings.filterwarnings("ignore", "Your input ran out of data")
                model.fit(
                    **devices.fit_arguments(batches, first, skip),
                    epochs=end,
                    initial_epoch=first,
                    callbacks=StepCallbacks(used, model),
                    verbose=0,
                    shuffle=False,
                )
            if model.stop_training:
                break
        if select.out_of_patience(training.epochs - 1) and devices.writes:
            say(f"Early stopping: no better {monitor} for {training.patience} epochs.")
    finally:
        state.on_train_end()
    if select.best is None:
        raise DataError(f"Training ended before an epoch was measured. Remove {out} to start afresh.")
    if devices.writes:
        # Count the rows of all epochs, including earlier sessions.
        rows = read_json_lines(out / METRICS)
        # Of a training that went on without its file of metrics, the best epoch may have no row.
        best = {row["epoch"]: row for row in rows}.get(select.best_epoch, {})
        untyped(info).update(
            {
                "status": "finished",
                "finished": datetime.now(UTC).date().isoformat(),
                "best_epoch": select.best_epoch,
                "kept_epochs": [kept for _, kept in select.kept],
                monitor.replace("val_", "best_", 1): select.best,
                "validation": {n.removeprefix("val_"): best[n] for n in best if n.startswith("val_")},
                "seconds": round(sum(row["seconds"] for row in rows), 1),
            }
        )
        write_json(out / STATUS, info)
    # A barrier: the other workers open the run only after worker 0 has written it.
    devices.total(0.0)


def _check_shared(devices: DistributionContext, out: Path, epoch: int, step: int) -> None:
    """Check that all workers see the same run directory."""
    if devices.workers == 1:
        return
    there = [devices.of_first_worker(epoch), devices.of_first_worker(step)]
    if not (out / STATUS).exists() or there != [epoch, step]:
        raise DataError(
            f"Worker {devices.worker} of {devices.workers} does not see the files of worker 0 in {out}. Choose a "
            "directory on a file system that all workers share."
        )
