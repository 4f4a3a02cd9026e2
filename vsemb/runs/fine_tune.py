"""Image backbones that are trained: put into a recipe, started from another run, and taken out of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.image.backbones import ARCHITECTURES, BackboneConfig, save_backbone_weights
from vsemb.image.presets import display_name, is_preset
from vsemb.parts import fields_of
from vsemb.recipes.schema import Recipe
from vsemb.recipes.towers import PUBLISHED, Pixels
from vsemb.runs.run import Run

FROM_SCRATCH = ("SmallConvNet",)
# Fields of an image tower that stay when its images become pixels through another backbone.
_KEPT = ("dropout", "augment", "augmentation", "erasing", "pooling", "projection")


def with_backbone(recipe: Recipe, dataset: Dataset, backbone: str | None = None) -> Recipe:
    """Returns the recipe with a backbone that is trained from pixels.

    Args:
        recipe: the recipe; what its image tower says of dropout, projection and augmentation stays.
        dataset: its features name the backbone and the weights to start from.
        backbone: another backbone, from random weights, or a preset (`hub:NAME`), from its own; or the directory of a
            run that was trained from pixels, from its.

    Raises:
        DataError: if no backbone is given and the features name none, or a preset cannot be opened.
        InvalidArgumentError: for an unknown backbone, or a recipe without images.
    """
    image = recipe.image_tower
    if image is None:
        raise invalid_argument("fine_tune", backbone, f"nothing: {recipe.name!r} reads no images")
    given = {name: getattr(image, name) for name in fields_of(type(image)) if name in _KEPT}
    # Features that are the embedding are none that a backbone was trained for; one that is replaced by another stays.
    if not image.from_pixels and "projection" in given and given["projection"].keeps_size:
        del given["projection"]
    if backbone is not None and backbone not in ARCHITECTURES and not is_preset(backbone):
        if Path(backbone).is_dir():
            config, _ = run_backbone(backbone, "fine_tune")
            return recipe.with_pixels(_named(_pixels(config, str(Path(backbone).resolve()), given)))
        if Path(backbone).name != backbone:
            raise DataError(f"{backbone} must be a backbone or a run that was trained from pixels; there is no run.")
    if backbone is not None:
        BackboneConfig(backbone)
        tower = Pixels(backbone, **given, weights="preset" if is_preset(backbone) else None)
        return recipe.with_pixels(_named(tower))
    store = FeatureStore.find(dataset, getattr(image, "fingerprint", None))
    if store.backbone is None or store.weights_path is None:
        raise DataError(f"The features of {dataset.path} name no backbone; give one: --fine-tune MobileNetV2.")
    return recipe.with_pixels(_pixels(store.backbone, str(store.weights_path.resolve()), given))


def _pixels(config: BackboneConfig, weights: str, given: Mapping[str, Any]) -> Pixels:
    given = {**given, "pooling": given.get("pooling") or config.pooling}
    return Pixels(config.name, weights=weights, size=config.size, layer=config.layer, **given)


def _named(tower: Pixels) -> Pixels:
    """Returns a tower whose backbone was named: augmented and with stored statistics, unless it starts from scratch."""
    pretrained = tower.backbone not in FROM_SCRATCH
    return replace(tower, frozen_statistics=pretrained, augment=pretrained)


def run_backbone(path: str | os.PathLike[str], name: str = "weights") -> tuple[BackboneConfig, keras.Model]:
    """Returns the network of a run that was trained from pixels, with its selected weights.

    Args:
        path: the run.
        name: of the argument, for messages.

    Raises:
        InvalidArgumentError: for a run that has no network of its own.
        DataError: for a directory that is not a run, or has no selected weights yet.
    """
    run = Run.open(path)
    tower = run.recipe.image_tower
    if tower is None or not tower.from_pixels:
        fix = "Train one: vsemb train RECIPE --fine-tune SmallConvNet"
        raise invalid_argument(name, str(path), "a weights file, or a run that was trained from pixels", fix)
    return tower.config, run.model.image_encoder.backbone


@contextlib.contextmanager
def kept_weights(backbone: keras.Model) -> Iterator[Path]:
    """Yields a file of a network's weights, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="vsemb-") as folder:
        file = Path(folder) / "backbone.weights.h5"
        save_backbone_weights(backbone, file)
        yield file


@contextlib.contextmanager
def starting_weights(recipe: Any) -> Iterator[Any]:
    """Yields a recipe whose backbone starts from a file where it names a run; other recipes as they are.

    Raises:
        InvalidArgumentError: for a run of another network, or of none.
        DataError: for a directory that is not a run.
    """
    image = recipe.image_tower
    run = None if image is None else image.starting_run
    if run is None:
        yield recipe
        return
    config = image.config
    found, trained = run_backbone(run, "image.weights")
    if replace(found, pooling=config.pooling).identity() != config.identity():
        received, allowed = f"{run}, with {_described(found)}", f"a run with {_described(config)}"
        raise invalid_argument("image.weights", received, allowed)
    with kept_weights(trained) as file:
        yield replace(recipe, image=replace(image, weights=str(file)))


def _described(config: BackboneConfig) -> str:
    layer = f", its layer {config.layer}" if config.layer else ""
    return f"{display_name(config.name)} of {config.size} pixels{layer}"


@contextlib.contextmanager
def lent_backbone(
    weights: str | os.PathLike[str], network: Mapping[str, Any]
) -> Iterator[tuple[BackboneConfig, str | Path]]:
    """Yields a network's configuration and weights, those of a run in a file that exists for as long.

    Args:
        weights: as in `build_backbone`, or the directory of a run that was trained from pixels.
        network: fields of `BackboneConfig` that were asked for, None where they were not; `backbone` is
            its name, by default MobileNetV2. Of a run's own network `pooling` and `crops` may be others.

    Raises:
        InvalidArgumentError: for a run that has no network, or fields beside one that has.

    Example:

        with lent_backbone("runs/pixels", {"pooling": "flat"}) as (config, weights):
            cache_features(dataset, config, weights=weights)
    """
    given = {name: value for name, value in network.items() if value is not None}
    path = Path(weights)
    if str(weights) in PUBLISHED or not path.is_dir():
        name = given.pop("backbone", "MobileNetV2")
        yield BackboneConfig(name, **given), weights if isinstance(weights, str) else path
        return
    config, trained = run_backbone(path, "weights")
    for name in sorted(given.keys() - {"pooling", "crops"}):
        raise invalid_argument(name, given[name], f"none with --weights {path}, whose own is taken")
    with kept_weights(trained) as file:
        # It is all there: what a preset is called decides nothing now.
        yield replace(config, **given, name=display_name(config.name)), file
