"""Acts on regions of images."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from vsemb.acts import Fields, act, chosen
from vsemb.systems.regions.sources import RegionSource

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.systems.regions.region_store import RegionStore


@act
def regions(
    data: Dataset | str | os.PathLike[str],
    *,
    from_: RegionSource | str = "grid",
    **options: Annotated[Any, Fields("region source", by="from_")],
) -> RegionStore:
    """Find regions of a dataset's images, and cache them with features of an image network in the dataset.

    The regions of an image are the whole image and the best boxes. They are in DATA/regions/FINGERPRINT. The
    fingerprint names network, weights, boxes and preprocessing. After an interruption, the same call resumes.

    Args:
        data: a prepared dataset.
        from_: source of the regions, or its kind.
        **options: fields of the source.

    Returns:
        The cached regions.

    Raises:
        InvalidArgumentError: for an unknown source or option.
        DataError: if files, weights or images cannot be read.

    Example:

        regions("data/flickr8k", backbone="MobileNetV2")
        regions("data/coco", from_="detections", file="found.json")
    """
    from vsemb.data.store import Dataset

    return chosen(RegionSource, "from_", from_, options).cache(Dataset.of(data))
