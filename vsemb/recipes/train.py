"""Training a recipe into a run directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vsemb.data.store import Dataset
from vsemb.recipes import build
from vsemb.recipes.fitting import fit_run
from vsemb.recipes.run import RECIPE, Run, check_out, prepare_run
from vsemb.recipes.schema import Recipe
from vsemb.recipes.start import start_model
from vsemb.training import RetrievalValidation
from vsemb.training.collapse import CollapseWarning


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
    else:
        check_out(out)
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
    fit_run(
        recipe,
        model,
        batches,
        out,
        info,
        validation=RetrievalValidation(val_split, build.build_images(recipe, val_split, store), tokenizer),
        monitor="val_recall_sum",
        unit="captions",
        checks=[CollapseWarning(batches.batch_size)],
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    return Run.open(out)
