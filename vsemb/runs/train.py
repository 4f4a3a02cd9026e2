"""Training a recipe into a run directory."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import DataError, unknown_name
from vsemb.recipes.reading import check_read
from vsemb.recipes.schema import Recipe
from vsemb.runs import build, optimizers
from vsemb.runs.initialization import start_model
from vsemb.runs.loop import fit_run
from vsemb.runs.precision import settled
from vsemb.runs.run import Run
from vsemb.runs.run_directory import check_out, prepare_run
from vsemb.runs.stored_run import RECIPE
from vsemb.runs.texts import USUAL_SPLITS, build_tokenizer, build_vocabulary, class_attributes, read_texts
from vsemb.systems.zero_shot.validation import ZeroShotValidation
from vsemb.training import RetrievalValidation
from vsemb.training.collapse import CollapseWarning
from vsemb.training.strategies import Devices, as_devices

#: Name of what decides which epoch is kept -> what measures it, under which name in the logs.
SELECTIONS: dict[str, tuple[type[RetrievalValidation] | type[ZeroShotValidation], str]] = {
    "recall": (RetrievalValidation, "val_recall_sum"),
    "zero-shot": (ZeroShotValidation, "val_zero_shot"),
}

# All fields of a recipe but those of what writes captions.
_READ = tuple(each.name for each in dataclasses.fields(Recipe) if each.name != "caption")


def train(
    recipe: Recipe,
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    data_service: str | None = None,
    strategy: str | Devices = "none",
) -> Run:
    """Trains a recipe; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train.
        dataset: with splits `train` and `val`.
        out: the run directory.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.
        data_service: address of a tf.data service, `grpc://host:port`, whose workers decode and augment
            images; the run is the same with and without, see `vsemb.data.ServicePixels`.
        strategy: `none`, `mirrored`, `multiworker`, or devices, see `vsemb.training.open_devices`.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        run = train(recipes.get("vsepp"), Dataset.open("data/flickr8k"), "runs/vsepp")
    """
    from vsemb.systems.trees.parse_texts import find_parses

    out, devices = Path(out), as_devices(strategy)
    check_read(recipe, _READ)
    devices.check_batch_size(recipe.batches.size)
    build.check_sets(recipe)
    check_selection(recipe, dataset)
    attributes = class_attributes(recipe, dataset)
    parses = find_parses(recipe, dataset)
    train_split = read_texts(recipe, dataset.split("train"), training=True, parses=parses)
    val_split = read_texts(recipe, dataset.split("val"), parses=parses)
    store = build.find_features(recipe, dataset)
    recipe = build.with_feature_size(recipe, store)
    vocabulary = build_vocabulary(recipe, train_split.captions, attributes)
    if (out / RECIPE).exists():
        info = prepare_run(recipe, dataset, out, vocabulary, store)
        if info["status"] == "finished":
            print(f"{out} is finished already.", file=sys.stderr)
            return Run.open(out)
    else:
        check_out(out)
    tokenizer = build_tokenizer(recipe, vocabulary)
    batches = build.build_batches(
        recipe,
        train_split,
        build.build_images(recipe, train_split, store, training=True, data_service=data_service),
        tokenizer,
    )
    steps = batches.steps_per_epoch
    validation, monitor = SELECTIONS[recipe.training.select]
    with devices.scope():
        model = build.build_model(
            settled(recipe),
            len(vocabulary),
            None if store is None else store.dim,
            None if attributes is None else len(attributes.names),
        )
        start_model(recipe, model, tokenizer, train_split, store, attributes)
        model.compile(
            optimizer=optimizers.build_optimizer(recipe, steps),
            loss=build.build_loss(recipe, steps),
            jit_compile=False,
        )
    # Only now, so that a recipe that does not work leaves no run behind.
    info = devices.chief_first(lambda: prepare_run(recipe, dataset, out, vocabulary, store))
    if (
        recipe.batches.sampling == "classes"
        and isinstance(store, FeatureStore)
        and len(store.training_views) < 10
    ):
        print(
            f"training on {max(len(store.training_views), 1)} view(s) of an image; "
            "`vsemb features --training-crops` makes the paper's ten",
            file=sys.stderr,
        )
    fit_run(
        recipe,
        model,
        batches,
        out,
        info,
        validation=validation(val_split, build.build_images(recipe, val_split, store), tokenizer),
        monitor=monitor,
        unit="captions",
        checks=[CollapseWarning(batches.batch_size)],
        devices=devices,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    return Run.open(out)


def check_selection(recipe: Recipe, dataset: Dataset) -> None:
    """Checks that a dataset has what the recipe is selected on.

    Raises:
        InvalidArgumentError: if the recipe names something unknown.
        DataError: if zero-shot recognition is asked for and train, val or test share a class, or val has
            only one.
    """
    select = recipe.training.select
    if select not in SELECTIONS:
        raise unknown_name("training.select", select, SELECTIONS)
    if select == "zero-shot":
        dataset.check_disjoint_classes(*(name for name in dataset.splits if name in USUAL_SPLITS))
        if len(dataset.split("val").class_ids()[0]) < 2:
            raise DataError(
                f"The split 'val' of {dataset.path} has one class, so nothing can be mistaken there, and the "
                "best epoch is chosen on it. Prepare the data with more of them."
            )
