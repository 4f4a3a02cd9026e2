"""The image tower of recipes on regions: cached features of the regions of every image."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.export.served_model import ImageInput
from vsemb.files import read_json, write_json
from vsemb.image.backbones import build_backbone
from vsemb.parts import Count, Positive
from vsemb.recipes.towers import BACKBONE, CachedImages, kept_backbone
from vsemb.runs.pictures import read_picture
from vsemb.systems.regions.image import RegionConfig, RegionExtractor, build_classifier, propose_boxes
from vsemb.systems.regions.region_encoder import RegionEncoder
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import RegionInput

# How the regions of new images are found, beside the backbone in a run directory.
_REGIONS_CONFIG = "regions.json"
# Regions whose statistics stand for those of all.
_STATISTICS = 50_000


class RegionImages(ImageSource):
    """Features of the regions of a split's images, from their cache; read from disk batch by batch.

    Args:
        store: the cache.
        split: the split.
        max_regions: only the first so many regions, of which the whole image is the first; None for all.
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

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        del seed
        return images


@dataclass(frozen=True)
class Regions(CachedImages, kind="regions"):
    """Cached features of the regions of every image, see `vsemb regions`.

    Attributes:
        max_regions: only the first so many regions of an image, of which the whole image is the first; null for all.
        use_bias: whether the map to the embedding has a bias.
        init_scale: the map is uniform in +- this; null for Glorot's range.
    """

    produces: ClassVar[str] = "multi_vector"
    folder: ClassVar[str] = "regions"

    max_regions: Count | None = None
    use_bias: bool = True
    init_scale: Positive | None = None

    def open(self, dataset: Dataset) -> RegionStore:
        return RegionStore.find(dataset, self.fingerprint)

    def open_for(self, dataset: Dataset, info: Mapping[str, Any], path: Path) -> RegionStore:
        del path
        # The detections of another dataset are others, but the network may be the same.
        store = RegionStore.find_alike(dataset, info["features"], info["regions"])
        self.check_dim(store, dataset, info)
        return store

    def describe(self, store: Any) -> dict[str, Any]:
        return {**super().describe(store), "regions": store.network}

    def keep(self, store: Any, folder: Path) -> None:
        super().keep(store, folder)
        write_json(folder / BACKBONE / _REGIONS_CONFIG, store.regions.to_json())
        if store.classifier_path is not None:
            shutil.copyfile(store.classifier_path, folder / BACKBONE / CLASSIFIER_NAME)

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> RegionImages:
        del training, service
        return RegionImages(store, split, self.max_regions)

    def input_shape(self, info: Mapping[str, Any]) -> tuple[int | None, ...]:
        return None, None, info["feature_dim"]

    def build(self, dim: int | None, info: Mapping[str, Any], *, seed: int, dtype: str) -> RegionEncoder:
        del seed
        return RegionEncoder(
            info["feature_dim"] if dim is None else dim,
            use_bias=self.use_bias,
            dropout=self.dropout,
            standardize=self.standardize,
            init_scale=self.init_scale,
            dtype=dtype,
        )

    def features(self, store: Any, split: Split) -> np.ndarray:
        """Returns the features of regions of as many images as give enough: (n, dim)."""
        count = min(store.count, self.max_regions or store.count)
        step = max(1, len(split.ids) * count // _STATISTICS)
        regions = store.rows(split.ids[::step], count)
        return regions[regions.any(axis=-1)]

    def image_input(self, path: Path) -> RegionInput | None:
        regions = kept_regions(path)
        if regions is None:
            return None
        if self.max_regions is not None and self.max_regions <= regions.count:
            # The best come first, so that fewer are the first of more.
            regions = dataclasses.replace(regions, count=self.max_regions - 1)
        extractor = kept_extractor(path, regions)
        return RegionInput(extractor.backbone_config, extractor.backbone, extractor)

    def whole_image_input(self, path: Path) -> WholeImageInput | None:
        """Returns how image bytes become the features of the whole image, region 0: (batch, dim)."""
        regions = kept_regions(path)
        if regions is None:
            return None
        whole = dataclasses.replace(regions, source="grid", rank="objectness", count=0)
        extractor = kept_extractor(path, whole)
        return WholeImageInput(extractor.backbone_config, extractor.backbone, extractor)

    def further_inputs(self, path: Path, encoded: bytes, name: str) -> dict[str, np.ndarray]:
        regions = kept_regions(path)
        if regions is None or regions.in_graph:
            return {}
        pixels = np.asarray(read_picture(encoded, name))
        return {"boxes": propose_boxes(regions, pixels, name)[None].astype(np.float32)}

    def facts(self, path: Path) -> str:
        kept, regions = kept_backbone(path), kept_regions(path)
        if kept is None or regions is None:
            return "precomputed features of an unknown network"
        said = f"features of {kept[0].name}, images of {kept[0].size} pixels a side"
        count = min(1 + regions.count, self.max_regions or 1 + regions.count)
        if count == 1:
            return f"{said}, of the whole image alone"
        return f"{said}, of {count} regions at most ({regions.source}), the whole image among them"


@dataclass(frozen=True, eq=False)
class WholeImageInput(ImageInput):
    """Image bytes to the features of the whole image, as a cache of regions has them.

    Attributes:
        extractor: finds no box besides the whole image.
    """

    extractor: RegionExtractor | None = None

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        assert self.extractor is not None
        found = self.extractor(encoded)
        return found.features[:, 0], found.valid


def kept_regions(path: Path) -> RegionConfig | None:
    """Returns how a run finds the regions of new images; None where it keeps no network for them.

    Args:
        path: the run directory.
    """
    file = path / BACKBONE / _REGIONS_CONFIG
    return RegionConfig.from_json(read_json(file, "regions")) if file.exists() else None


def kept_extractor(path: Path, regions: RegionConfig) -> RegionExtractor:
    """Returns what finds regions of images and describes them with the network that a run keeps.

    Args:
        path: the run directory.
        regions: which regions.
    """
    kept = kept_backbone(path)
    assert kept is not None
    config, weights = kept
    backbone = build_backbone(config, weights)
    # Beside the weights of the backbone.
    classifier = build_classifier(config, weights.parent / CLASSIFIER_NAME) if regions.by_classifier else None
    return RegionExtractor(config, regions, backbone, classifier)
