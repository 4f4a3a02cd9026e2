"""Image tower of recipes on regions: cached features of the regions of every image."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import read_picture
from vsemb.errors import DataError
from vsemb.files import read_json, write_json
from vsemb.image.backbones import build_backbone
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Positive
from vsemb.recipes.info import feature_dim, untyped
from vsemb.recipes.towers import BACKBONE, CachedImages, kept_backbone
from vsemb.runs.run import Run
from vsemb.systems.regions.encoders import RegionEncoder
from vsemb.systems.regions.extractor import RegionExtractor, build_classifier
from vsemb.systems.regions.region_store import RegionConfig, RegionStore
from vsemb.systems.regions.signature import RegionInput

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo

# File with the configuration of regions for new images, next to the backbone in a run directory.
_REGIONS_CONFIG = "regions.json"
# Number of regions sampled for statistics of features.
_STATISTICS = 50_000


class RegionImages(ImageSource):
    """Cached features of the regions of a split's images, read from disk batch by batch.

    Args:
        store: the cached regions.
        split: the split.
        max_regions: number of first regions to read, including the whole image; None for all.
    """

    def __init__(self, store: RegionStore, split: Split, max_regions: int | None = None) -> None:
        self._store = store
        self._ids = split.ids
        self._count = store.count if max_regions is None else min(max_regions, store.count)

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._count, self._store.dim), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self._store.rows(self._ids[rows], self._count)


@dataclass(frozen=True)
class CachedRegions(CachedImages):
    """Base of towers on cached regions."""

    folder: ClassVar[str] = "regions"

    def open(self, dataset: StoredDataset) -> RegionStore:
        return RegionStore.find(dataset, self.fingerprint)

    def open_for(self, dataset: StoredDataset, info: RunInfo, path: Path) -> RegionStore:
        # Another dataset has other detections, but may use the same network.
        store = RegionStore.find_alike(dataset, untyped(info)["features"], untyped(info)["regions"])
        self.check_dim(store, dataset, info)
        return store

    def describe(self, store: Any) -> dict[str, Any]:
        return {**super().describe(store), "regions": store.network}

    def keep(self, store: Any, folder: Path) -> None:
        super().keep(store, folder)
        if store.backbone is None:
            return
        write_json(folder / BACKBONE / _REGIONS_CONFIG, store.regions.to_json())
        if store.classifier_path is not None:
            shutil.copyfile(store.classifier_path, folder / BACKBONE / CLASSIFIER_NAME)

    def facts(self, path: Path) -> str:
        kept = kept_backbone(path)
        if kept is None:
            return "precomputed features of an unknown network"
        return f"features of {kept[0].name}, images of {kept[0].size} pixels a side, of {self.read_regions(path)}"

    def read_regions(self, path: Path) -> str:
        """Return a phrase for the regions per image that a run reads."""
        return "the whole image alone"


@dataclass(frozen=True)
class Regions(CachedRegions, kind="regions"):
    """Cached features of the regions of every image, see `vsemb regions`.

    Attributes:
        max_regions: number of first regions to read per image, including the whole image; null for all.
        use_bias: whether the map to the embedding has a bias.
        init_scale: the map is initialized uniformly in +- this; null for Glorot's range.
    """

    produces: ClassVar[str] = "multi_vector"

    max_regions: Count | None = None
    use_bias: bool = True
    init_scale: Positive | None = None

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> RegionImages:
        return RegionImages(store, split, self.max_regions)

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        return None, None, info["feature_dim"]

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> RegionEncoder:
        size = feature_dim(info) if dim is None else dim
        return RegionEncoder(size, **self.arguments("fingerprint", "max_regions"), dtype=dtype)

    def features(self, store: Any, split: Split) -> np.ndarray:
        """Return features of regions, without padding, of a sample of images: (n, dim) float32."""
        count = min(store.count, self.max_regions or store.count)
        step = max(1, len(split.ids) * count // _STATISTICS)
        regions = store.rows(split.ids[::step], count)
        return regions[regions.any(axis=-1)]

    def image_input(self, path: Path) -> RegionInput | None:
        if not keeps_network(path):
            return None
        # Regions come best first, so a smaller count keeps the first ones.
        return RegionInput.of(kept_extractor(path, self.max_regions))

    def further_inputs(self, path: Path, encoded: bytes, name: str) -> dict[str, np.ndarray]:
        if not keeps_network(path) or (candidates := kept_regions(path).candidates).in_graph:
            return {}
        pixels = np.asarray(read_picture(encoded, name))
        return {"boxes": candidates.propose(pixels, name)[None].astype(np.float32)}

    def read_regions(self, path: Path) -> str:
        regions = kept_regions(path)
        count = min(1 + regions.count, self.max_regions or 1 + regions.count)
        if count == 1:
            return super().read_regions(path)
        return f"{count} regions at most ({regions.source}), the whole image among them"


def keeps_network(path: Path) -> bool:
    """Return whether a run directory has the network for regions of new images."""
    return (path / BACKBONE / _REGIONS_CONFIG).exists()


def kept_regions(path: Path) -> RegionConfig:
    """Return the configuration of a run's regions for new images.

    Args:
        path: the run directory.

    Raises:
        DataError: if the network of the run's regions is unknown.
    """
    if not keeps_network(path):
        raise DataError(
            f"{path} was trained on regions whose network is not known, so it cannot read new images. "
            "Train it on regions made by `vsemb regions`."
        )
    return RegionConfig.from_json(read_json(path / BACKBONE / _REGIONS_CONFIG, "regions"))


def kept_extractor(path: Path, max_regions: int | None = None, **changes: Any) -> RegionExtractor:
    """Return the extractor of regions of new images, configured like the cached regions of a run.

    Args:
        path: the run directory.
        max_regions: number of first regions, including the whole image; None for all.
        **changes: fields to change in the run's `RegionConfig`.

    Raises:
        DataError: if the network of the run's regions is unknown.
    """
    regions = kept_regions(path)
    if max_regions is not None:
        changes["count"] = min(regions.count, max_regions - 1)
    regions = dataclasses.replace(regions, **changes)
    kept = kept_backbone(path)
    assert kept is not None
    config, weights = kept
    backbone = build_backbone(config, weights)
    # The classifier is next to the weights of the backbone.
    classifier = build_classifier(config, weights.parent / CLASSIFIER_NAME) if regions.by_classifier else None
    return RegionExtractor(config, regions, backbone, classifier)


def require_regions(run: Run) -> None:
    """Check that a run is on regions.

    Raises:
        DataError: if the run is not on regions; the error names a recipe on regions.
    """
    if not run.sees_images or not run.multi_vector:
        raise DataError(
            f"{run.path} must be a run on regions; its recipe {run.recipe.name!r} embeds an image as one vector. "
            "Train one on regions: vsemb train dvsa"
        )


def regions_of(run: Run, dataset: StoredDataset) -> RegionStore:
    """Open the cached regions of a dataset for a run.

    Raises:
        DataError: if the run is not on regions, or the dataset lacks regions that fit the run.
    """
    require_regions(run)
    return run.features_of(dataset)
