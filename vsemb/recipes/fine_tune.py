"""Turning a recipe on features into one that trains the backbone too."""

from __future__ import annotations

import dataclasses

from vsemb.data.features import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig
from vsemb.recipes.schema import ImageConfig, Recipe

FROM_SCRATCH = ("SmallConvNet",)


def with_backbone(recipe: Recipe, dataset: Dataset, backbone: str | None = None) -> Recipe:
    """Returns the recipe with the backbone in the loop.

    Args:
        recipe: the recipe.
        dataset: its features name the backbone and the weights to start from.
        backbone: another backbone, from random weights unless `image.weights` is set.

    Raises:
        DataError: if no backbone is given and the features name none.
        InvalidArgumentError: for an unknown backbone.
    """
    if backbone is not None:
        BackboneConfig(backbone)
        scratch = backbone in FROM_SCRATCH
        image = dataclasses.replace(
            recipe.image, backbone=backbone, frozen_statistics=not scratch, augment=not scratch
        )
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
        pooling=store.backbone.pooling,
        layer=store.backbone.layer,
        weights=str(store.weights_path.resolve()),
        features=None,
    )
    return _from_pixels(recipe, image)


def _from_pixels(recipe: Recipe, image: ImageConfig) -> Recipe:
    # Statistics, closed-form starts and features as embeddings are those of a cache, which there is none of.
    image = dataclasses.replace(image, standardize=False, projection=True)
    return dataclasses.replace(
        recipe, image=image, training=dataclasses.replace(recipe.training, start="random")
    )
