"""Acts on regions: find them, align words with them, and search for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from vsemb.acts import Fields, act, chosen
from vsemb.console import say
from vsemb.parts import Count, NonNegative
from vsemb.systems.regions.sources import RegionSource

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import Alignment
    from vsemb.systems.regions.region_search import FoundRegions
    from vsemb.systems.regions.region_store import RegionStore


@act
def regions(
    data: StoredDataset | str | os.PathLike[str],
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
        regions("data/coco", from_="detections", file="detections.json")
    """
    from vsemb.data.store import StoredDataset

    return chosen(RegionSource, "from_", from_, options).cache(StoredDataset.of(data))


@act
def align(
    run: Run | str | os.PathLike[str],
    image: str | os.PathLike[str],
    sentence: str,
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    affinity: NonNegative = 0.0,
    boxes: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    fade: NonNegative = 0.25,
) -> Alignment:
    """Align the words of a sentence with the regions of an image that they describe.

    The run is on regions, such as one of the recipe dvsa. Each word gets its best region. With an affinity,
    neighbouring words tend to share a region, so phrases get longer. The drawn image has the boxes, and the words in
    the colours of their boxes; words with low scores are grey.

    Args:
        run: a run, or its directory.
        image: an image file, or the key of an image in the dataset.
        sentence: a sentence about the image.
        data: dataset of image keys; default: the training dataset.
        affinity: bonus for neighbouring words on one region, added to the score.
        boxes: detector results for this image, in COCO format (pixels).
        out: draw the alignment: a .png or .jpg file.
        fade: draw words below this share of the best score grey.

    Raises:
        InvalidArgumentError: if no word is known, or boxes are given to a run that proposes its own.
        DataError: if the run has no regions, or the image or the boxes cannot be read.

    Example:

        aligned = align("runs/dvsa", "dog.jpg", "a brown dog chases a child", out="aligned.png")
        [(phrase.text, phrase.box) for phrase in aligned.phrases]
    """
    from vsemb.drawing.pictures import check_picture_path, with_drawing
    from vsemb.runs.images import open_keys
    from vsemb.runs.run import Run
    from vsemb.systems.regions.aligning import align_image

    name = os.fspath(image)
    if out is not None:
        check_picture_path(out, [name])
    opened = Run.open(run, "retrieval")
    dataset = open_keys(opened, data, [name])
    aligned = align_image(opened, name, sentence, dataset, affinity=affinity, boxes=boxes, report=say)
    return with_drawing(aligned, lambda: aligned.drawn(fade), out)


@act
def search_regions(
    run: Run | str | os.PathLike[str],
    text: str,
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "all",
    k: Count = 10,
    all_regions: bool = False,
    parts: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> FoundRegions:
    """Find regions of images by a text, with a run on regions.

    The score of a region is the sum over all words. Each image is found by its best region.

    Args:
        run: a run, or its directory.
        text: a few words to look for.
        data: dataset to search; default: the training dataset.
        split: split to search, or all.
        k: number of regions.
        all_regions: allow several regions per image.
        parts: exclude whole images.
        out: contact sheet of the regions, 400 at most, as .png or .jpg.

    Raises:
        InvalidArgumentError: if no word is known, or for an unknown split.
        DataError: if the run is not on regions, or the dataset lacks regions that fit.

    Example:

        buses = search_regions("runs/dvsa", "red bus", k=5)
        buses[0].key, buses[0].box
    """
    from vsemb.drawing.pictures import check_picture_path, with_drawing
    from vsemb.runs.run import Run
    from vsemb.systems.regions import region_search

    if out is not None:
        check_picture_path(out)
    opened = Run.open(run, "retrieval")
    dataset = opened.open_data(data)
    best = region_search.search_regions(
        opened, dataset, text, k=k, split=split, all_regions=all_regions, parts=parts, report=say
    )
    return with_drawing(best, lambda: region_search.region_sheet(dataset, best), out if best else None)
