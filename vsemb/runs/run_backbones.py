"""Networks of images that runs were trained with, as where another training starts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from vsemb.errors import invalid_argument
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.presets import display_name

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe


def run_backbone(path: str | os.PathLike[str], name: str = "weights") -> tuple[BackboneConfig, keras.Model]:
    """Returns the network of a run that was trained from pixels, with its selected weights.

    Args:
        path: the run.
        name: of the argument, for messages.

    Raises:
        InvalidArgumentError: for a run that has no network of its own.
        DataError: for a directory that is no run, or has no selected weights yet.
    """
    # Only here: runs build their models with what starts from other runs.
    from vsemb.runs.build import backbone_config
    from vsemb.runs.tasks import open_run

    run = open_run(path)
    config = backbone_config(run.recipe)
    encoder = getattr(run.model, "image_encoder", None) if config is not None else None
    trained = getattr(encoder, "backbone", None)
    if config is None or trained is None:
        raise invalid_argument(
            name,
            str(path),
            "a weights file, or a run that was trained from pixels",
            "Train one: vsemb train RECIPE --fine-tune SmallConvNet",
        )
    return config, trained


@contextlib.contextmanager
def kept_weights(backbone: keras.Model) -> Iterator[Path]:
    """Yields a file of a network's weights, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="vsemb-") as folder:
        file = Path(folder) / "backbone.weights.h5"
        save_backbone_weights(backbone, file)
        yield file


def starting_backbone(config: BackboneConfig, recipe: Recipe) -> keras.Model:
    """Builds a recipe's network with the weights that training starts from.

    Args:
        config: the network.
        recipe: `image.weights` is what `build_backbone` takes, or the directory of a run whose network is the
            same but for its pooling.

    Raises:
        InvalidArgumentError: for a run of another network, or of none.
        DataError: for weights that cannot be read.
    """
    weights, seed = recipe.image.weights, recipe.training.seed
    if weights in (None, "imagenet", "preset", "random") or not Path(weights).is_dir():
        return build_backbone(config, weights, seed=seed)
    found, trained = run_backbone(weights, "image.weights")
    # Building the run's model has drawn from its own seed.
    keras.utils.set_random_seed(seed)
    if dataclasses.replace(found, pooling=config.pooling).identity() != config.identity():
        raise invalid_argument(
            "image.weights", f"{weights}, with {_described(found)}", f"a run with {_described(config)}"
        )
    with kept_weights(trained) as file:
        return build_backbone(config, file, seed=seed)


def _described(config: BackboneConfig) -> str:
    layer = f", its layer {config.layer}" if config.layer else ""
    return f"{display_name(config.name)} of {config.size} pixels{layer}"
