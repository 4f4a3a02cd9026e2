"""Training a recipe of any task into a run directory."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsemb.errors import invalid_argument
from vsemb.recipes.schema import Recipe
from vsemb.runs.fine_tune import starting_weights
from vsemb.runs.loop import fit_run
from vsemb.runs.run import RECIPE, Run
from vsemb.runs.run_directory import check_out, enter_run
from vsemb.training.strategies import DistributionContext, as_distribution


def train(
    recipe: Recipe,
    data: Any,
    out: str | os.PathLike[str],
    *,
    inputs: Mapping[str, Run] | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    data_service: str | None = None,
    strategy: str | DistributionContext = "none",
) -> Run:
    """Trains a recipe; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train, of any task.
        data: what the recipe is trained on, as its `open_data` returns it, or its path.
        out: the run directory.
        inputs: runs that the recipe starts from, by name, such as `{"encoder": Run.open("runs/kiros")}`.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.
        data_service: address of a tf.data service, `grpc://host:port`, whose workers decode and augment images; the
            run is the same with and without, see `vsemb.data.pixel_service.ServicePixels`.
        strategy: `none`, `mirrored`, `multiworker`, or a context, see `vsemb.training.open_distribution`.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        run = train(recipes.get("vsepp"), Dataset.open("data/flickr8k"), "runs/vsepp")
    """
    out, devices, inputs = Path(out), as_distribution(strategy), dict(inputs or {})
    for name in inputs:
        if name not in recipe.inputs:
            allowed = f"one of {', '.join(recipe.inputs)}" if recipe.inputs else "nothing"
            raise invalid_argument(name, str(inputs[name].path), f"{allowed} for the recipe {recipe.name!r}")
    devices.check_batch_size(recipe.batch_size)
    if not (out / RECIPE).exists():
        check_out(out)
    if isinstance(data, str | os.PathLike):
        data = recipe.open_data(data)
    job = recipe.prepare(data, out, inputs=inputs, data_service=data_service)
    enter = functools.partial(enter_run, recipe, job.info, out, job.vocabulary, job.keep)
    if (out / RECIPE).exists() and enter()["status"] == "finished":
        print(f"{out} is finished already.", file=sys.stderr)
        return _finished(recipe, data, out, devices)
    batches = job.batches()
    steps = batches.steps_per_epoch
    with devices.scope():
        with starting_weights(recipe) as starting:
            model = job.model(starting, recipe.training.training_dtype)
        model.compile(
            optimizer=recipe.optimizer.build(steps, recipe.training.epochs),
            loss=job.loss(steps),
            jit_compile=False,
        )
    # Only now, so that a recipe that does not work leaves no run behind.
    info = devices.first_worker_first(enter)
    fit_run(
        recipe.training,
        model,
        batches,
        out,
        info,
        validation=job.validation(),
        monitor=job.monitor,
        unit=job.unit,
        checks=job.checks(batches.batch_size),
        devices=devices,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    return _finished(recipe, data, out, devices)


def _finished(recipe: Recipe, data: Any, out: Path, devices: DistributionContext) -> Run:
    run = Run.open(out)
    if devices.writes:
        recipe.finish(run, data)
    return run
