"""Networks of images in a training's loop, and those that came out of one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.image.backbones import ARCHITECTURES, BackboneConfig
from vsemb.presets import display_name, is_preset
from vsemb.recipes.schema import ImageConfig, Recipe
from vsemb.runs.run_backbones import kept_weights, run_backbone

FROM_SCRATCH = ("SmallConvNet",)


def with_backbone(recipe: Recipe, dataset: Dataset, backbone: str | None = None) -> Recipe:
    """Returns the recipe with the backbone in the loop.

    Args:
        recipe: the recipe.
        dataset: its features name the backbone and the weights to start from.
        backbone: another backbone, from random weights unless `image.weights` is set, or a preset
            (`hub:NAME`), from its own; or the directory of a run that was trained from pixels, from its.

    Raises:
        DataError: if no backbone is given and the features name none, or a preset cannot be opened.
        InvalidArgumentError: for an unknown backbone.
    """
    if backbone is not None and backbone not in ARCHITECTURES and not is_preset(backbone):
        if Path(backbone).is_dir():
            return _from_pixels(recipe, _of_run(recipe.image, Path(backbone)))
        if Path(backbone).name != backbone:
            raise DataError(f"There is no run at {backbone}, whose network training is to start from.")
    if backbone is not None:
        BackboneConfig(backbone)
        scratch = backbone in FROM_SCRATCH
        image = dataclasses.replace(
            recipe.image, backbone=backbone, frozen_statistics=not scratch, augment=not scratch
        )
        if is_preset(backbone) and image.weights is None:
            image = dataclasses.replace(image, weights="preset")
        return _from_pixels(recipe, image)
    store = FeatureStore.find(dataset, recipe.image.features)
    if store.backbone is None or store.weights_path is None:
        raise DataError(
            f"The features of {dataset.path} name no backbone; give one: --fine-tune MobileNetV2."
        )
    image = dataclasses.replace(
        recipe.image,
        backbone=store.backbone.name,
        size=store.backbone.size,
        pooling=recipe.image.pooling or store.backbone.pooling,
        layer=store.backbone.layer,
        weights=str(store.weights_path.resolve()),
        features=None,
    )
    return _from_pixels(recipe, image)


def _of_run(image: ImageConfig, path: Path) -> ImageConfig:
    """Returns the image tower of a recipe with the network of a run."""
    config, _ = run_backbone(path, "fine-tune")
    scratch = config.name in FROM_SCRATCH
    return dataclasses.replace(
        image,
        backbone=config.name,
        size=config.size,
        pooling=image.pooling or config.pooling,
        layer=config.layer,
        weights=str(path.resolve()),
        features=None,
        frozen_statistics=not scratch,
        augment=not scratch,
    )


def _from_pixels(recipe: Recipe, image: ImageConfig) -> Recipe:
    # Statistics, closed-form starts and features as embeddings are those of a cache, which there is none of.
    image = dataclasses.replace(image, standardize=False, projection=True)
    return dataclasses.replace(
        recipe, image=image, training=dataclasses.replace(recipe.training, start="random")
    )


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
    if str(weights) in ("imagenet", "preset", "random") or not path.is_dir():
        name = given.pop("backbone", "MobileNetV2")
        yield BackboneConfig(name, **given), weights if isinstance(weights, str) else path
        return
    config, trained = run_backbone(path, "weights")
    for name in sorted(given.keys() - {"pooling", "crops"}):
        raise invalid_argument(name, given[name], f"none with --weights {path}, whose own is taken")
    with kept_weights(trained) as file:
        # It is all there: what a preset is called decides nothing now.
        yield dataclasses.replace(config, **given, name=display_name(config.name)), file
