"""Training a recipe into a run directory."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import keras

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.files import write_json
from vsemb.recipes import build
from vsemb.recipes.run import BEST, LOGS, METRICS, RECIPE, STATE, STATUS, Run, prepare_run
from vsemb.recipes.schema import Recipe
from vsemb.recipes.start import start_model
from vsemb.training import MetricsLog, ProgressBar, RetrievalValidation, SelectBest, TrainingState
from vsemb.training.collapse import CollapseWarning, RefuseNaN


def train(
    recipe: Recipe,
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
) -> Run:
    """Trains a recipe; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train.
        dataset: with splits `train` and `val`.
        out: the run directory.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        run = train(recipes.get("vsepp"), Dataset.open("data/flickr8k"), "runs/vsepp")
    """
    out = Path(out)
    train_split, val_split = dataset.split("train"), dataset.split("val")
    store = build.find_features(recipe, dataset)
    vocabulary = build.build_vocabulary(recipe, train_split.captions)
    if (out / RECIPE).exists():
        info = prepare_run(recipe, dataset, out, vocabulary, store)
        if info["status"] == "finished":
            print(f"{out} is finished already.", file=sys.stderr)
            return Run.open(out)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is no run. Choose another --out.")
    tokenizer = build.build_tokenizer(recipe, vocabulary)
    batches = build.build_batches(
        recipe,
        train_split,
        build.build_images(recipe, train_split, store, augment=recipe.image.augment),
        tokenizer,
    )
    steps = batches.steps_per_epoch
    model = build.build_model(recipe, len(vocabulary), None if store is None else store.dim)
    start_model(recipe, model, tokenizer, train_split, store)
    model.compile(
        optimizer=build.build_optimizer(recipe, steps),
        loss=build.build_loss(recipe, steps),
        jit_compile=False,
    )
    # Only now, so that a recipe that does not work leaves no run behind.
    info = prepare_run(recipe, dataset, out, vocabulary, store)
    select = SelectBest(out / BEST, patience=recipe.training.patience)
    state = TrainingState(out / STATE, [select], seconds=checkpoint_seconds, every_steps=checkpoint_steps)
    epoch, step = state.restore(model)
    if (epoch, step) != (0, 0):
        print(f"going on at epoch {epoch + 1}, step {step} of {steps}", file=sys.stderr)
    callbacks = [
        RetrievalValidation(val_split, build.build_images(recipe, val_split, store), tokenizer),
        select,
        MetricsLog(out / METRICS, epoch),
        keras.callbacks.TensorBoard(out / LOGS, write_graph=False),
        ProgressBar(steps, batches.batch_size, recipe.training.epochs, (epoch, step)),
        CollapseWarning(batches.batch_size),
        RefuseNaN(),
        state,
    ]
    # The rest of an epoch that was interrupted is a `fit` of its own, see `PairBatches.dataset`.
    parts = [(epoch, step, epoch + 1), (epoch + 1, 0, recipe.training.epochs)] if step else []
    try:
        for first, skip, end in parts or [(epoch, 0, recipe.training.epochs)]:
            if first >= end or select.out_of_patience(first - 1):
                break
            if first != epoch:
                # With a moving average Keras leaves that in the weights at the end of each `fit`.
                state.restore(model)
            model.fit(
                batches.dataset(first, skip),
                epochs=end,
                initial_epoch=first,
                callbacks=callbacks,
                verbose=0,
                shuffle=False,
            )
            if model.stop_training:
                break
    finally:
        state.release_signals()
    if select.best is None:
        raise DataError(f"Training ended before an epoch was measured. Remove {out} to start afresh.")
    info |= {
        "status": "finished",
        "best_epoch": select.best_epoch,
        "best_recall_sum": select.best,
        "seconds": _seconds(out / METRICS),
    }
    write_json(out / STATUS, info)
    return Run.open(out)


def _seconds(metrics: Path) -> float:
    """Returns the time of all epochs, those of earlier sessions included."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return round(sum(row["seconds"] for row in rows), 1)
