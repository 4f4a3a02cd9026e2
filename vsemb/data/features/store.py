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
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.features.files import FORMAT, VERSION, WEIGHTS_NAME, load_array
from vsemb.data.features.folders import FolderKind, RowsOfIds, refuse_not_finite
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, sha256_bytes

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import BackboneConfig

_MANIFEST_KEYS = {
    "dataset",
    "backbone",
    "weights_sha256",
    "crops",
    "dim",
    "rows",
    "ids_sha256",
    "features_sha256",
    "fingerprint",
}
_KIND = FolderKind("feature", FORMAT, VERSION, frozenset(_MANIFEST_KEYS))


class FeatureStore:
    """The cached features of a dataset's images. Made by `FeatureStore.open` or `FeatureStore.find`.

    Attributes:
        directory: the folder.
        manifest: its manifest, as a dict.
        fingerprint: names backbone, weights and preprocessing.
        dim: length of a feature vector.
        ids: int64 (images,), ascending.
        images_computed, seconds: what `cache_features` had left to do, and how long it took.

    Example:

    >>> store = FeatureStore.find(Dataset.open("data/flickr8k"))  # doctest: +SKIP
    >>> store.rows(np.array([5, 3]))  # doctest: +SKIP
    """

    def __init__(self, directory: Path, manifest: dict[str, Any], ids: np.ndarray, features: np.ndarray):
        self.directory = directory
        self.manifest = manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.dim = int(features.shape[-1])
        self.ids = ids
        self.images_computed = 0
        self.seconds = 0.0
        self._features = features
        self._positions = RowsOfIds(ids, "features", directory)

    @classmethod
    def open(cls, directory: str | Path, dataset: Dataset, *, verify: bool = False) -> FeatureStore:
        """Opens cached features and checks that they belong to `dataset`.

        Args:
            directory: a folder in the dataset's `features`.
            dataset: the dataset that they must belong to.
            verify: whether to read them in full, even if that was done since they last changed.

        Raises:
            DataError: if the folder is missing, incomplete or damaged, of another version, of another
                dataset, if its ids are not exactly the dataset's, or if a feature is NaN or infinite.
        """
        directory = Path(directory)
        manifest = _KIND.read_manifest(directory, dataset)
        ids = load_array(directory / "ids.npy")
        features = load_array(directory / "features.npy", mmap=True)
        if ids.dtype != np.int64 or ids.ndim != 1 or features.dtype != np.float32 or features.ndim not in (2, 3):
            raise DataError(f"Features in {directory} are damaged: ids {ids.dtype}, features {features.dtype}.")
        _KIND.check_rows(directory, manifest, dataset, ids, features)
        if manifest["backbone"] is not None:
            from vsemb.image.backbones import BackboneConfig

            config = BackboneConfig.from_json(manifest["backbone"])
            kept = views_kept(config.crops, features.shape[1] if features.ndim == 3 else 1)
            fingerprint = feature_fingerprint(config, manifest["weights_sha256"], kept)
            _KIND.check_preprocessing(directory, manifest, fingerprint)

        def check() -> None:
            refuse_not_finite(features, ids, dataset, f"Features in {directory}")

        _KIND.verify(directory, manifest, check, again=verify)
        return cls(directory, manifest, ids, features)

    @classmethod
    def find(cls, dataset: Dataset, fingerprint: str | None = None) -> FeatureStore:
        """Opens the dataset's features of this fingerprint (or its beginning); the only ones, if None.

        Raises:
            DataError: if there are none, several fit, or `open` refuses them.
        """
        return cls.open(_KIND.find(dataset, fingerprint, _describe), dataset)

    @classmethod
    def verify_all(cls, dataset: Dataset) -> list[FeatureStore]:
        """Opens all features of a dataset and reads them in full.

        Raises:
            DataError: if `open` refuses one.
        """
        return [cls.open(directory, dataset, verify=True) for directory in _KIND.folders(dataset)]

    @property
    def backbone(self) -> BackboneConfig | None:
        """The configuration of the backbone; None for precomputed features."""
        from vsemb.image.backbones import BackboneConfig

        config = self.manifest["backbone"]
        return None if config is None else BackboneConfig.from_json(config)

    @property
    def weights_path(self) -> Path | None:
        """The weights that the features were made with; None for precomputed features."""
        path = self.directory / WEIGHTS_NAME
        return path if path.is_file() else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape on disk: (images, dim), or (images, views, dim)."""
        return tuple(self._features.shape)

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
        features = self._features[self._positions(ids)]
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
        positions = self._positions(ids)
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


def _describe(directory: Path) -> str:
    manifest = read_json(directory / "manifest.json", "feature manifest")
    backbone = manifest.get("backbone")
    if not backbone:
        return f"{directory.name} (precomputed, {manifest.get('dim')} entries)"
    what = backbone.get("layer") or backbone.get("pooling")
    return (
        f"{directory.name} ({backbone['name']} at {backbone.get('size')}, {what}, "
        f"{backbone.get('crops', 1)} crops, {manifest.get('dim')} entries)"
    )
