"""What runs have in common that take images in: how they come by features and regions of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.data.features.store import FeatureStore
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import read_json
from vsemb.runs import build
from vsemb.runs.stored_run import BACKBONE, BACKBONE_CONFIG, BACKBONE_WEIGHTS, REGIONS_CONFIG, StoredRun

if TYPE_CHECKING:
    from vsemb.systems.regions.image import RegionConfig
    from vsemb.systems.regions.regions import RegionStore


@dataclass(frozen=True)
class ImageRun(StoredRun):
    """Base of the runs that take images in."""

    fields: ClassVar[tuple[str, ...]] = (*StoredRun.fields, "features", "feature_dim")

    @property
    def sets(self) -> bool:
        """Whether an image is a set of regions."""
        return self.recipe.image.regions

    @property
    def feature_backbone(self) -> tuple[dict[str, Any], Path] | None:
        """Configuration and weights of the backbone behind the features, or None.

        None both for a run from pixels, whose backbone is part of the model, and for one trained on
        precomputed features, which cannot embed new images.
        """
        folder = self.path / BACKBONE
        if not (folder / BACKBONE_CONFIG).exists():
            return None
        return read_json(folder / BACKBONE_CONFIG, "backbone"), folder / BACKBONE_WEIGHTS

    @property
    def feature_regions(self) -> RegionConfig | None:
        """How the regions of an image are found; None for a run that has none or cannot embed new images."""
        from vsemb.systems.regions.image import RegionConfig

        path = self.path / BACKBONE / REGIONS_CONFIG
        return RegionConfig.from_json(read_json(path, "regions")) if path.exists() else None

    def regions_of(self, dataset: Dataset) -> RegionStore:
        """Opens the regions of a dataset's images that the run reads.

        Raises:
            DataError: if the run reads none, or the dataset has none or others.
        """
        from vsemb.systems.regions.regions import RegionStore

        self.need_regions()
        store = self._features_of(dataset)
        assert isinstance(store, RegionStore)
        return store

    def need_regions(self) -> None:
        """Refuses a run whose images are no sets of regions.

        Raises:
            DataError: naming the recipe whose images are.
        """
        if not self.sets:
            raise DataError(
                f"{self.path} has no regions: its recipe {self.recipe.name!r} embeds an image as one vector. "
                "Train the recipe dvsa, which has: vsemb train dvsa"
            )

    def images_of(self, dataset: Dataset, split: Split) -> ImageSource:
        """Returns a split's images as the model wants them.

        Raises:
            DataError: if the dataset's features are not of the backbone the run was trained with.
        """
        store = None
        if self.recipe.image.backbone is None:
            store = self._features_of(dataset)
        return build.build_images(self.recipe, split, store)

    def _regions_of(self, dataset: Dataset) -> RegionStore:
        # Checking the regions of a large dataset takes seconds.
        from vsemb.systems.regions.regions import RegionStore

        opened: dict[Path, RegionStore] = vars(self).setdefault("_opened_regions", {})
        if dataset.path not in opened:
            network = self.info.get("regions", "")
            opened[dataset.path] = RegionStore.find_alike(dataset, self.info["features"], network)
        return opened[dataset.path]

    def _features_of(self, dataset: Dataset) -> build.Store:
        wanted = self.info["features"]
        if self.feature_backbone is None and dataset.fingerprint != self.info["dataset"]:
            # Precomputed features name no backbone; their size is all that can be compared.
            wanted = None
        store: build.Store = self._regions_of(dataset) if self.sets else FeatureStore.find(dataset, wanted)
        if store.dim != self.info["feature_dim"]:
            raise DataError(
                f"The features of {dataset.path} have {store.dim} entries, the run was trained on "
                f"{self.info['feature_dim']}."
            )
        return store
