"""The regions of a run: which they are, and where a dataset has them."""

from __future__ import annotations

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.runs.run import Run
from vsemb.systems.regions.image import RegionConfig, RegionExtractor
from vsemb.systems.regions.image_tower import Regions, kept_extractor, kept_regions
from vsemb.systems.regions.region_store import RegionStore


def require_regions(run: Run) -> None:
    """Refuses a run whose images are not regions.

    Raises:
        DataError: naming a recipe whose images are.
    """
    if not run.sees_images or not run.multi_vector:
        raise _no_regions(run)


def _no_regions(run: Run) -> DataError:
    return DataError(
        f"{run.path} must be a run on regions; its recipe {run.recipe.name!r} embeds an image as one vector. "
        "Train one on regions: vsemb train dvsa"
    )


def regions_of(run: Run, dataset: Dataset) -> RegionStore:
    """Opens the regions of a dataset's images that a run reads.

    Raises:
        DataError: if the run reads none, or the dataset has none or others.
    """
    # Captions of regions read the same cache, one region at a time.
    if not isinstance(getattr(run.recipe, "image", None), Regions):
        raise _no_regions(run)
    return run.features_of(dataset)


def feature_regions(run: Run) -> RegionConfig | None:
    """Returns how the regions of new images are found; None for a run that has none or cannot embed new images."""
    return kept_regions(run.path)


def region_extractor(run: Run) -> RegionExtractor:
    """Returns what finds and describes the regions of new images as the run's cache did, all of them.

    Raises:
        DataError: if the run's regions are of a network that is not known.

    Example:

        found = region_extractor(run)(tf.constant([open("dog.jpg", "rb").read()]))
        print(found.boxes.shape, found.features.shape)
    """
    regions = kept_regions(run.path)
    if regions is None:
        raise DataError(
            f"{run.path} was trained on regions whose network is not known, so it cannot read new images. "
            "Train it on regions made by `vsemb regions`."
        )
    return kept_extractor(run.path, regions)
