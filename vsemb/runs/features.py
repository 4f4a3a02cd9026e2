"""Cache image features of a named network, for `vsemb.features` and for training without cached features."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from vsemb.acts import act
from vsemb.errors import invalid_argument
from vsemb.parts import Count

if TYPE_CHECKING:
    from vsemb.data.features.store import FeatureStore
    from vsemb.data.store import StoredDataset
    from vsemb.recipes.schema import Recipe

Pooling = Literal["mean", "max", "mean+max", "multilevel", "regional", "flat", "pyramid", "token", "embedding"]
Resize = Literal["squash", "short-side", "preset"]


@act
def features(
    data: StoredDataset | str | os.PathLike[str],
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    *,
    crops: Literal[1, 10] = 1,
    resize: Resize | None = None,
    keep_crops: bool = False,
    training_crops: bool = False,
    mirror: bool | None = None,
    size: Count | None = None,
    pooling: Pooling | None = None,
    layer: str | None = None,
    batch_size: Count = 64,
) -> FeatureStore:
    """Compute the image features of a dataset with a pretrained network, and cache them in the dataset.

    Training with a backbone does the same before training. Features are stored in DATA/features/FINGERPRINT. The
    fingerprint depends on network, weights and preprocessing. After an interruption, the same call resumes.

    In the backbone hub:PRESET, PRESET is the name, handle or directory of a keras-hub preset.

    Weights: Keras downloads imagenet and preset. A file ends in .weights.h5 or .h5. A run must be trained from pixels;
    its network is used.

    Pooling: multilevel adds the means of inner layers to mean and max of the last layer. In place of the max, regional
    has the mean of the maxima of overlapping regions. flat keeps all grid cells. pyramid takes the maximum of the map
    and of each ninth of it. For transformers, token is the class token, and embedding is the joint embedding of CLIP
    and SigLIP.

    Resizing: squash gives the network the whole image as a square. short-side keeps the aspect ratio: the shorter side
    becomes 256 pixels and crops have 224, or the same ratio for other sizes. One crop is then the centre. preset uses
    the interpolation, antialiasing, crop and padding of a keras-hub preset. The default is preset for presets and
    squash for other networks.

    Ten crops are stored as their mean. Training crops are the whole image and ten crops; training draws one of the
    crops each time. This takes eleven times as long.

    Args:
        data: a prepared dataset; all splits are used.
        backbone: a keras.applications network, SmallConvNet, or hub:PRESET; default: MobileNetV2.
        weights: imagenet, preset, random, a file, or a run; default: preset for a preset, else imagenet.
        crops: one view of the image, or ten crops.
        resize: squash, crop after resizing, or as a preset says; default: as a preset says, else squash.
        keep_crops: store features of each crop instead of their mean.
        training_crops: also store ten crops for training.
        mirror: also store features of mirror images; default: with one crop and without training crops.
        size: width and height of the input in pixels; default: the network's.
        pooling: pooling over grid cells; default: the network's.
        layer: inner layer in place of the pooled map, such as fc6 or fc7 of VGG16.
        batch_size: images per batch.

    Returns:
        The features.

    Raises:
        DataError: if weights or images cannot be read.
        InvalidArgumentError: for an unknown network, or incompatible options.

    Example:

        store = vsemb.features("data/flickr8k", "MobileNetV2")
    """
    from vsemb.data.features.compute import cache_features
    from vsemb.data.store import StoredDataset
    from vsemb.runs.fine_tune import lent_backbone

    if mirror is None:
        mirror = crops == 1 and not training_crops
    network = {"backbone": backbone, "size": size, "pooling": pooling, "layer": layer, "crops": crops, "resize": resize}
    with lent_backbone(weights, network) as (config, source):
        return cache_features(
            StoredDataset.of(data),
            config,
            weights=source,
            mirror=mirror,
            keep_crops=keep_crops,
            training_crops=training_crops,
            batch_size=batch_size,
        )


def with_features(
    recipe: Recipe,
    dataset: StoredDataset,
    backbone: str | None,
    weights: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Return a recipe that reads the features of a network. Missing features are computed first.

    Args:
        recipe: a recipe that is trained on cached features.
        dataset: the training dataset.
        backbone, weights, **options: as `features`.

    Returns:
        The recipe, with the fingerprint of these features.

    Raises:
        InvalidArgumentError: if the recipe does not read cached features.
        VsembError: as `features`.

    Example:

        recipe = with_features(recipes.get("vsepp"), dataset, "MobileNetV2")
    """
    image = recipe.image_tower
    if getattr(image, "folder", None) != "features":
        reads = "no images" if image is None else image.kind
        allowed = f"omitted for a recipe that reads {reads}; it is for recipes that read cached features"
        raise invalid_argument("backbone", backbone, allowed)
    from vsemb.image.backbones import DEFAULT_BACKBONE

    image = image.below(backbone or DEFAULT_BACKBONE)
    store = features(dataset, backbone, weights, **{**image.network, **options})
    return replace(recipe, image=replace(image, fingerprint=store.fingerprint))  # type: ignore[call-arg]
