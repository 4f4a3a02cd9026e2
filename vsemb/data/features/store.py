"""Image features on disk: computed once by a frozen backbone, memory-mapped, tied to their dataset.

    DATA/features/<fingerprint>/
      features.npy         float32 (images, dim), or (images, views, dim) where the crops are kept, or
                           each image's mirror image or ten crops stand beside it for training
      ids.npy              int64 (images,), ascending: features.npy[i] belongs to image ids[i]
      manifest.json        of which dataset, by which backbone, weights and preprocessing
      .verified.json       when they were last read in full
      backbone.weights.h5  the weights that were used (absent for precomputed features)

The fingerprint names backbone, weights and preprocessing; opening checks that the rows are those of the
dataset at hand, so features of another dataset, or in another order, are refused and not silently used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vsemb.data.features.files import FORMAT, VERSION
from vsemb.data.features.folders import FeatureFolder, refuse_not_finite
from vsemb.errors import invalid_argument
from vsemb.files import read_json, sha256_bytes

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import BackboneConfig


class FeatureStore(FeatureFolder):
    """The cached features of a dataset's images, see `FeatureFolder`.

    Example:

    >>> store = FeatureStore.find(Dataset.open("data/flickr8k"))  # doctest: +SKIP
    >>> store.rows(np.array([5, 3]))  # doctest: +SKIP
    """

    singular = "feature"
    format = FORMAT, VERSION
    keys = frozenset({"crops"})
    arrays = {"features": ("float32", (2, 3))}

    def expected_fingerprint(self) -> str | None:
        config = self.backbone
        if config is None:
            return None
        kept = views_kept(config.crops, self.views_count)
        return feature_fingerprint(config, self.manifest["weights_sha256"], kept)

    def check(self, dataset: Dataset) -> None:
        refuse_not_finite(self._features, self.ids, dataset, self.called(self.directory))

    @classmethod
    def _describe(cls, directory: Path) -> str:
        manifest = read_json(directory / "manifest.json", "feature manifest")
        backbone = manifest.get("backbone")
        if not backbone:
            return f"{directory.name} (precomputed, {manifest.get('dim')} entries)"
        what = backbone.get("layer") or backbone.get("pooling")
        return (
            f"{directory.name} ({backbone['name']} at {backbone.get('size')}, {what}, "
            f"{backbone.get('crops', 1)} crops, {manifest.get('dim')} entries)"
        )

    @property
    def views_count(self) -> int:
        """How many views of an image are kept: 1, unless the crops or mirror images are."""
        return self._features.shape[1] if self._features.ndim == 3 else 1

    @property
    def training_views(self) -> range:
        """The views to draw from in training, where view 0 is the image as it is measured and served.

        The image and its mirror image (0 and 1), or ten crops (1 to 10); empty where there are none.
        """
        if self.views_count == 1 or self.manifest["crops"] != 1:
            return range(0)
        return range(0 if self.views_count == 2 else 1, self.views_count)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Gathers the features of images, averaged over crops where those are kept.

        Views that are for training alone take no part.

        Args:
            ids: int64 (n,), in any order, repeats allowed.

        Returns:
            float32 (n, dim).

        Raises:
            DataError: if an id has no features.
        """
        if self.training_views:
            return self.views(ids, 0)
        features = self._features[self.positions(ids)]
        return features.mean(axis=1) if features.ndim == 3 else features

    def views(self, ids: np.ndarray, view: int | np.ndarray) -> np.ndarray:
        """Gathers one view (crop) of each image.

        Args:
            ids: int64 (n,).
            view: the view's number in [0, `views_count`), one for all or int (n,), one an image.

        Returns:
            float32 (n, dim).
        """
        views = np.asarray(view)
        if views.size and not (views.min() >= 0 and views.max() < self.views_count):
            raise invalid_argument("view", view, f"numbers in [0, {self.views_count})")
        positions = self.positions(ids)
        return self._features[positions, views] if self._features.ndim == 3 else self._features[positions]


def views_kept(crops: int, views: int) -> bool | str:
    """Returns what a fingerprint says of the views: whether they are kept, or `"training crops"`."""
    return "training crops" if crops == 1 and views > 2 else views > 1


def feature_fingerprint(backbone: BackboneConfig, weights_sha256: str, keep_views: bool | str = False) -> str:
    """Returns the name of the features that a backbone with these weights makes: 16 hex digits.

    Covers the configuration, the values of the weights, the version of the preprocessing, and
    `views_kept`.
    """
    from vsemb.image.backbones import PREPROCESSING_VERSION

    content = {
        "backbone": backbone.identity(),
        "weights": weights_sha256,
        "preprocessing": PREPROCESSING_VERSION,
        "keep_views": keep_views,
    }
    return sha256_bytes(json.dumps(content, sort_keys=True).encode())[:16]
