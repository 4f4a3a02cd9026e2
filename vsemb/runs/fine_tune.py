"""Fine-tune image backbones: add one to a recipe, start it from another run, take it from a run."""

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
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.image.backbones import ARCHITECTURES, DEFAULT_BACKBONE, BackboneConfig, save_backbone_weights
from vsemb.image.presets import display_name, is_preset
from vsemb.parts import fields_of
from vsemb.recipes.schema import Recipe
from vsemb.recipes.towers import PUBLISHED, Pixels
from vsemb.runs.run import Run

# Fields of an image tower that are kept when another backbone from pixels replaces it.
_KEPT = ("dropout", "augment", "augmentation", "erasing", "pooling", "projection")


def with_backbone(recipe: Recipe, dataset: StoredDataset, backbone: str | None = None) -> Recipe:
    """Return the recipe with a backbone that is trained from pixels.

    Args:
        recipe: the recipe; dropout, projection and augmentation of its image tower are kept.
        dataset: its features name the backbone and the initial weights.
        backbone: another backbone with its ImageNet weights, random ones for SmallConvNet; a preset (`hub:NAME`) with
            its own weights; or the directory of a run that was trained from pixels, with the weights of that run.

    Raises:
        DataError: if neither `backbone` nor the features name a backbone, or a preset cannot be opened.
        InvalidArgumentError: for an unknown backbone, or a recipe without images.
    """
    image = recipe.image_tower
    if image is None:
        raise invalid_argument("fine_tune", backbone, f"omitted, since {recipe.name!r} reads no images")
    given = {name: getattr(image, name) for name in fields_of(type(image)) if name in _KEPT}
    # A projection that keeps the size is for cached features that already are embeddings, not for the outputs of a
    # backbone. The projection of a tower from pixels is kept.
    if not image.from_pixels and "projection" in given and given["projection"].keeps_size:
        del given["projection"]
    if backbone is not None and backbone not in ARCHITECTURES and not is_preset(backbone):
        if Path(backbone).is_dir():
            config, _ = run_backbone(backbone, "fine_tune")
            return recipe.with_pixels(_named(_pixels(config, str(Path(backbone).resolve()), given), config))
        if Path(backbone).name != backbone:
            raise DataError(f"{backbone} must be a backbone or a run that was trained from pixels; it does not exist.")
    if backbone is not None:
        config = BackboneConfig(backbone)
        given["pooling"] = config.fitting(given.get("pooling"))
        return recipe.with_pixels(_named(Pixels(backbone, **given, weights=config.network.published), config))
    store = FeatureStore.find(dataset, getattr(image, "fingerprint", None))
    if store.backbone is None or store.weights_path is None:
        raise DataError(
            f"The features of {dataset.path} name no backbone. Name one as `fine_tune`, such as MobileNetV2."
        )
    config = store.backbone
    tower = _pixels(config, str(store.weights_path.resolve()), given)
    for name in ("resize", "crops"):
        read, trained = getattr(config, name), getattr(replace(tower, pooling=None).config, name)
        if read != trained:
            fix = f"Name the network as `fine_tune`, {display_name(config.name)}, to start from its own weights."
            raise invalid_argument(name, read, f"{trained} in features whose network is trained from pixels", fix)
    return recipe.with_pixels(tower)


def _pixels(config: BackboneConfig, weights: str, given: Mapping[str, Any]) -> Pixels:
    given = {**given, "pooling": config.fitting(given.get("pooling")) or config.pooling}
    return Pixels(config.name, weights=weights, size=config.size, layer=config.layer, **given)


def _named(tower: Pixels, config: BackboneConfig) -> Pixels:
    """Return a tower with augmentation and stored statistics, or without both if its backbone starts from scratch."""
    pretrained = config.network.published is not None
    return replace(tower, frozen_statistics=pretrained, augment=pretrained)


def run_backbone(path: str | os.PathLike[str], name: str = "weights") -> tuple[BackboneConfig, keras.Model]:
    """Return the network of a run that was trained from pixels, with the selected weights.

    Args:
        path: the run directory.
        name: name of the argument in errors.

    Raises:
        InvalidArgumentError: if the run does not have a network of its own.
        DataError: if the directory is not a run, or does not have selected weights yet.
    """
    run = Run.open(path)
    tower = run.recipe.image_tower
    if tower is None or not tower.from_pixels:
        fix = "Train one: vsemb train RECIPE --data DATA --out RUN --fine-tune SmallConvNet"
        raise invalid_argument(name, str(path), "a weights file, or a run that was trained from pixels", fix)
    return tower.config, run.model.image_encoder.backbone


@contextlib.contextmanager
def kept_weights(backbone: keras.Model) -> Iterator[Path]:
    """Yield a temporary file with a network's weights."""
    with tempfile.TemporaryDirectory(prefix="vsemb-") as folder:
        file = Path(folder) / "backbone.weights.h5"
        save_backbone_weights(backbone, file)
        yield file


@contextlib.contextmanager
def starting_weights(recipe: Any) -> Iterator[Any]:
    """Yield a recipe whose backbone starts from a weights file instead of a run. Other recipes are unchanged.

    Raises:
        InvalidArgumentError: if the run has another network, or does not have a network of its own.
        DataError: if the directory is not a run.
    """
    image = recipe.image_tower
    run = None if image is None else image.starting_run
    if run is None:
        yield recipe
        return
    config = image.config
    trained_config, trained = run_backbone(run, "image.weights")
    if replace(trained_config, pooling=config.pooling).identity() != config.identity():
        received, allowed = f"{run}, with {_described(trained_config)}", f"a run with {_described(config)}"
        raise invalid_argument("image.weights", received, allowed)
    with kept_weights(trained) as file:
        yield replace(recipe, image=replace(image, weights=str(file)))


def _described(config: BackboneConfig) -> str:
    layer = f", its layer {config.layer}" if config.layer else ""
    return f"{display_name(config.name)} of {config.size} pixels{layer}"


@contextlib.contextmanager
def lent_backbone(
    weights: str | os.PathLike[str] | None, network: Mapping[str, Any]
) -> Iterator[tuple[BackboneConfig, str | os.PathLike[str]]]:
    """Yield a network's configuration and weights. Weights of a run are in a temporary file.

    Args:
        weights: as in `build_backbone`, or the directory of a run that was trained from pixels; None for the published
            weights of the network.
        network: requested fields of `BackboneConfig`, None for others. `backbone` is the name, by default MobileNetV2.
            For the network of a run, only `pooling`, `crops` and `resize` can be requested.

    Raises:
        InvalidArgumentError: if the run does not have a network of its own, or other fields are requested of it.

    Example:

        with lent_backbone("runs/pixels", {"pooling": "flat"}) as (config, weights):
            cache_features(dataset, config, weights=weights)
    """
    given = {name: value for name, value in network.items() if value is not None}
    if weights is None or str(weights) in PUBLISHED or not Path(weights).is_dir():
        config = BackboneConfig(given.pop("backbone", DEFAULT_BACKBONE), **given)
        # `build_backbone` refuses these for a network without published weights.
        yield config, (config.network.published or "imagenet") if weights is None else weights
        return
    path = Path(weights)
    config, trained = run_backbone(path, "weights")
    for name in sorted(given.keys() - {"pooling", "crops", "resize"}):
        raise invalid_argument(name, given[name], f"omitted with `weights` {path}, a run with its own network")
    with kept_weights(trained) as file:
        # The file has all weights, so the reference to a preset is not needed.
        yield replace(config, **given, name=display_name(config.name)), file
