"""Cache image features of a named network, for `vsemb features` and for training without cached features."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from vsemb.data.features.compute import cache_features
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import invalid_argument
from vsemb.image.presets import is_preset
from vsemb.recipes.schema import Recipe
from vsemb.runs.fine_tune import lent_backbone


def make_features(
    dataset: Dataset,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    *,
    size: int | None = None,
    pooling: str | None = None,
    layer: str | None = None,
    crops: int = 1,
    resize: str | None = None,
    mirror: bool | None = None,
    **options: Any,
) -> FeatureStore:
    """Compute and cache the features of a dataset's images, or open cached features.

    Args:
        dataset: the dataset; all splits are used.
        backbone: name of a keras.applications network, `SmallConvNet`, or `hub:PRESET`; default MobileNetV2.
        weights: `imagenet`, `preset`, `random`, a weights file, or a run that was trained from pixels. Default:
            `preset` for a preset, `imagenet` for other networks.
        size: side of the input in pixels; default: the network's own.
        pooling: pooling over grid cells; default: the network's own.
        layer: inner layer to use instead of the pooled map.
        crops: number of crops, 1 or 10.
        resize: `squash`, the whole image to a square; `short-side`, crops of the resized image; or `preset`, as the
            preset says. Default: `preset` for a preset, `squash` for other networks.
        mirror: whether mirror images are cached for training; default: with one crop and without training crops.
        **options: `batch_size`, `keep_crops` and `training_crops` of `cache_features`.

    Returns:
        The features.

    Raises:
        DataError: if weights or images cannot be read.
        InvalidArgumentError: for an unknown network, or incompatible options.

    Example:

        store = make_features(Dataset.open("data/flickr8k"), "MobileNetV2")
    """
    if mirror is None:
        mirror = crops == 1 and not options.get("training_crops")
    weights = weights or ("preset" if is_preset(backbone) else "imagenet")
    network = {"backbone": backbone, "size": size, "pooling": pooling, "layer": layer, "crops": crops, "resize": resize}
    with lent_backbone(weights, network) as (config, source):
        return cache_features(dataset, config, weights=source, mirror=mirror, **options)


def with_features(
    recipe: Recipe,
    dataset: Dataset,
    backbone: str | None,
    weights: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Return a recipe that reads the features of a network. Missing features are computed first.

    Args:
        recipe: a recipe that is trained on cached features.
        dataset: the training dataset.
        backbone, weights, **options: as `make_features`.

    Returns:
        The recipe, with the fingerprint of these features.

    Raises:
        InvalidArgumentError: if the recipe does not read cached features.
        VsembError: as `make_features`.

    Example:

        recipe = with_features(recipes.get("vsepp"), dataset, "MobileNetV2")
    """
    image = recipe.image_tower
    if getattr(image, "folder", None) != "features":
        reads = "no images" if image is None else image.kind
        allowed = f"omitted for a recipe that reads {reads}; it is for recipes that read cached features"
        raise invalid_argument("backbone", backbone, allowed)
    if backbone is not None:
        image = image.below(backbone)
    store = make_features(dataset, backbone, weights, **{**image.network, **options})
    return replace(recipe, image=replace(image, fingerprint=store.fingerprint))  # type: ignore[call-arg]
