"""Regions of images on disk: their boxes and features, computed once, memory-mapped, tied to their dataset.

    DATA/regions/<fingerprint>/
      features.npy         float16 (images, regions, dim); a row of zeros is padding, no region
      boxes.npy            float32 (images, regions, 4), [x, y, w, h] as fractions of the image's width and
                           height; region 0 is the whole image, then the best boxes, best first
      scores.npy           float32 (images, regions), what the boxes were ranked by
      ids.npy              int64 (images,), ascending: row i of the others is of image ids[i]
      manifest.json        of which dataset, by which network, weights, boxes and preprocessing
      backbone.weights.h5  the weights that were used
      classifier.weights.h5  where its confidence ranked the boxes, those of the network's classifier

Features are float16 on disk: 20 regions take 20 times the space of one vector an image, and half of that is
saved. They are of the order of 1, so what is lost is a relative 2^-11, less than what an image loses when it
is stored as JPEG; what float16 cannot hold is refused when it is written. Readers get float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.all_images import name_images
from vsemb.data.features.files import CLASSIFIER_NAME, WEIGHTS_NAME, load_array
from vsemb.data.features.folders import FolderKind, RowsOfIds
from vsemb.errors import DataError, VsembError
from vsemb.files import read_json, sha256_bytes

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import BackboneConfig
    from vsemb.systems.regions.image import RegionConfig

_MANIFEST_KEYS = {
    "dataset",
    "backbone",
    "weights_sha256",
    "regions",
    "candidates_sha256",
    "dim",
    "rows",
    "ids_sha256",
    "features_sha256",
    "boxes_sha256",
    "scores_sha256",
    "fingerprint",
}
WHOLE_IMAGE = (0.0, 0.0, 1.0, 1.0)

_BLOCK_BYTES = 4 << 20
# Corners are sums of float32 numbers near 1, which round.
_OUTSIDE = 1e-4

KIND = FolderKind("region", "vsemb-regions", 1, frozenset(_MANIFEST_KEYS))


class RegionStore:
    """The cached regions of a dataset's images. Made by `RegionStore.open` or `RegionStore.find`.

    Attributes:
        directory: the folder.
        manifest: its manifest, as a dict.
        fingerprint: names backbone, weights, boxes and preprocessing.
        dim: length of a region's feature vector.
        count: regions of an image, the whole image and padding included.
        ids: int64 (images,), ascending.
        images_computed, seconds: what `cache_regions` had left to do, and how long it took.

    Example:

    >>> store = RegionStore.find(Dataset.open("data/flickr8k"))  # doctest: +SKIP
    >>> store.rows(np.array([5, 3])).shape  # doctest: +SKIP
    (2, 20, 2176)
    """

    def __init__(
        self,
        directory: Path,
        manifest: dict[str, Any],
        ids: np.ndarray,
        features: np.ndarray,
        boxes: np.ndarray,
        scores: np.ndarray,
    ):
        self.directory = directory
        self.manifest = manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.count, self.dim = map(int, features.shape[1:])
        self.ids = ids
        self.images_computed = 0
        self.seconds = 0.0
        self._features = features
        self._boxes = boxes
        self._scores = scores
        self._positions = RowsOfIds(ids, "regions", directory)

    @classmethod
    def open(cls, directory: str | Path, dataset: Dataset, *, verify: bool = False) -> RegionStore:
        """Opens cached regions and checks that they belong to `dataset`.

        Args:
            directory: a folder in the dataset's `regions`.
            dataset: the dataset that they must belong to.
            verify: whether to read them in full, even if that was done since they last changed.

        Raises:
            DataError: if the folder is missing, incomplete or damaged, of another version, of another
                dataset, if its ids are not exactly the dataset's, if a number is NaN or infinite, a box lies
                outside its image, the first region is not the whole image, or padding has features.
        """
        from vsemb.image.backbones import BackboneConfig
        from vsemb.systems.regions.image import RegionConfig

        directory = Path(directory)
        manifest = KIND.read_manifest(directory, dataset)
        ids = load_array(directory / "ids.npy")
        features = load_array(directory / "features.npy", mmap=True)
        boxes, scores = (load_array(directory / f"{name}.npy") for name in ("boxes", "scores"))
        found = [(array.dtype.name, array.ndim) for array in (ids, features, boxes, scores)]
        if found != [("int64", 1), ("float16", 3), ("float32", 3), ("float32", 2)]:
            raise DataError(
                f"Regions in {directory} are damaged: ids {ids.dtype}, features {features.dtype} "
                f"{features.shape}, boxes {boxes.dtype} {boxes.shape}, scores {scores.dtype} {scores.shape}."
            )
        KIND.check_rows(directory, manifest, dataset, ids, features)
        if boxes.shape != (*features.shape[:2], 4) or scores.shape != features.shape[:2]:
            raise DataError(
                f"Regions in {directory} are damaged: features {features.shape}, boxes {boxes.shape}, "
                f"scores {scores.shape}."
            )
        try:
            config = RegionConfig.from_json(manifest["regions"])
            fingerprint = region_fingerprint(
                BackboneConfig.from_json(manifest["backbone"]),
                manifest["weights_sha256"],
                config,
                manifest["candidates_sha256"],
            )
        except TypeError as error:
            raise DataError(
                f"Regions in {directory} are damaged: backbone or regions in manifest.json are no objects. "
                f"Remove the folder and make them again with `{KIND.command}`."
            ) from error
        KIND.check_preprocessing(directory, manifest, fingerprint)
        for name in (WEIGHTS_NAME, *[CLASSIFIER_NAME] * config.by_classifier):
            if not (directory / name).is_file():
                raise DataError(
                    f"Regions in {directory} are damaged: there is no {name}, which the regions of new "
                    f"images need. Remove the folder and make them again with `{KIND.command}`."
                )

        def check() -> None:
            refuse_wrong_regions(features, boxes, scores, ids, dataset, f"Regions in {directory}")

        KIND.verify(directory, manifest, check, ("boxes", "scores", "features"), again=verify)
        return cls(directory, manifest, ids, features, boxes, scores)

    @classmethod
    def find(cls, dataset: Dataset, fingerprint: str | None = None) -> RegionStore:
        """Opens the dataset's regions of this fingerprint (or its beginning); the only ones, if None.

        Raises:
            DataError: if there are none, several fit, or `open` refuses them.
        """
        return cls.open(KIND.find(dataset, fingerprint, _describe), dataset)

    @classmethod
    def verify_all(cls, dataset: Dataset) -> list[RegionStore]:
        """Opens all regions of a dataset and reads them in full.

        Raises:
            DataError: if `open` refuses one.
        """
        return [cls.open(directory, dataset, verify=True) for directory in KIND.folders(dataset)]

    @classmethod
    def find_alike(cls, dataset: Dataset, fingerprint: str, network: str) -> RegionStore:
        """Opens the dataset's regions of this fingerprint; else the only ones whose `network` is this.

        The detections of another dataset are others, but what describes them may be the same.

        Raises:
            DataError: if there are none, several have another fingerprint, or `open` refuses them.
        """
        folder = dataset.path / KIND.plural
        if not (folder / fingerprint / "manifest.json").is_file():
            manifests = sorted(folder.glob("[!.]*/manifest.json"))
            alike = [path.parent for path in manifests if _network(_manifest(path)) == network]
            if len(alike) == 1:
                return cls.open(alike[0], dataset)
        return cls.find(dataset, fingerprint)

    @property
    def network(self) -> str:
        """Names backbone, weights and preprocessing as `fingerprint` does, and no detections."""
        name = _network(self.manifest)
        assert name is not None
        return name

    @property
    def backbone(self) -> BackboneConfig:
        """The configuration of the backbone."""
        from vsemb.image.backbones import BackboneConfig

        return BackboneConfig.from_json(self.manifest["backbone"])

    @property
    def regions(self) -> RegionConfig:
        """Which regions they are."""
        from vsemb.systems.regions.image import RegionConfig

        return RegionConfig.from_json(self.manifest["regions"])

    @property
    def weights_path(self) -> Path:
        """The weights that the features were made with."""
        return self.directory / WEIGHTS_NAME

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape on disk: (images, regions, dim)."""
        return tuple(self._features.shape)

    @property
    def mean_count(self) -> float:
        """Regions of an image without padding, the whole image included, on average."""
        return float(self._boxes.any(axis=-1).sum(axis=-1).mean())

    @property
    def classifier_path(self) -> Path | None:
        """The classifier whose confidence ranked the boxes; None where something else did."""
        return self.directory / CLASSIFIER_NAME if self.regions.by_classifier else None

    def rows(self, ids: np.ndarray, max_regions: int | None = None) -> np.ndarray:
        """Gathers the features of images' regions.

        Args:
            ids: int64 (n,), in any order, repeats allowed.
            max_regions: only the first so many regions of an image; None for all.

        Returns:
            float32 (n, count, dim); padding is zeros.

        Raises:
            DataError: if an id has no regions.
        """
        return self._features[:, :max_regions][self._positions(ids)].astype(np.float32)

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        """Gathers the boxes of images' regions.

        Args:
            ids: int64 (n,).

        Returns:
            float32 (n, count, 4), `[x, y, w, h]` as fractions of the image's width and height; padding is
            zeros.
        """
        return self._boxes[self._positions(ids)]

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Gathers what the boxes were ranked by: float32 (n, count)."""
        return self._scores[self._positions(ids)]


def region_fingerprint(
    backbone: BackboneConfig, weights_sha256: str, regions: RegionConfig, candidates_sha256: str | None = None
) -> str:
    """Returns the name of the regions that a backbone with these weights makes: 16 hex digits.

    Covers the configurations, the values of the weights, the versions of the preprocessing, and what else
    decides the boxes.

    Args:
        backbone: the network.
        weights_sha256: of the network's weights.
        regions: which regions.
        candidates_sha256: of the detections that boxes come from, or of the classifier that ranks them.
    """
    from vsemb.image.backbones import PREPROCESSING_VERSION
    from vsemb.systems.regions.image import REGIONS_VERSION

    content = {
        "backbone": backbone.identity(),
        "weights": weights_sha256,
        "regions": regions.to_json(),
        "candidates": candidates_sha256,
        "preprocessing": [PREPROCESSING_VERSION, REGIONS_VERSION],
    }
    return sha256_bytes(json.dumps(content, sort_keys=True).encode())[:16]


def _manifest(path: Path) -> Any:
    return read_json(path, "region manifest")


def _network(manifest: Any) -> str | None:
    """The fingerprint without the detections; None for what is no manifest of this version."""
    from vsemb.image.backbones import BackboneConfig
    from vsemb.systems.regions.image import RegionConfig

    try:
        backbone = BackboneConfig.from_json(manifest["backbone"])
        regions = RegionConfig.from_json(manifest["regions"])
        candidates = None if regions.source == "detections" else manifest["candidates_sha256"]
        return region_fingerprint(backbone, manifest["weights_sha256"], regions, candidates)
    except (KeyError, TypeError, VsembError):
        return None


def _describe(directory: Path) -> str:
    manifest = read_json(directory / "manifest.json", "region manifest")
    try:
        backbone, regions = manifest["backbone"], manifest["regions"]
        return (
            f"{directory.name} ({regions['count']} boxes by {regions['source']}, {backbone['name']} at "
            f"{backbone['size']}, {regions['pooling']}, {regions['rank']}, overlap {regions['overlap']}, "
            f"{manifest['dim']} entries)"
        )
    except (KeyError, TypeError):
        return f"{directory.name} (of unknown form)"


def refuse_wrong_regions(
    features: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    ids: np.ndarray,
    dataset: Dataset,
    what: str,
) -> None:
    """Refuses regions that cannot be, naming the images.

    Args:
        features: (n, count, dim), may be memory-mapped.
        boxes: (n, count, 4).
        scores: (n, count).
        ids: int64 (n,), the images.
        dataset: the dataset.
        what: what has the regions, for the message.

    Raises:
        DataError: if one is wrong.
    """

    def refuse(bad: Any, why: Callable[[str], str]) -> None:
        if bad.any():
            raise DataError(f"{what}: {why(name_images(dataset, ids[bad]))}.")

    present = np.asarray(boxes.any(axis=-1))  # (n, count)
    finite = np.isfinite(boxes).all(axis=(1, 2)) & np.isfinite(scores).all(axis=1)
    refuse(~finite, "NaN or infinity in the boxes or scores of {}".format)
    refuse((boxes[:, 0] != WHOLE_IMAGE).any(axis=-1), "the first region is not the whole image for {}".format)
    corner, size = boxes[..., :2], boxes[..., 2:]
    inside = (corner >= 0).all(-1) & (size > 0).all(-1) & (corner + size <= 1 + _OUTSIDE).all(-1)
    refuse((present & ~inside).any(axis=-1), "a box lies outside the image, or is empty, for {}".format)
    refuse((present[:, 1:] & ~present[:, :-1]).any(axis=-1), "a box comes after padding for {}".format)
    infinite, stray = np.zeros(len(boxes), bool), np.zeros(len(boxes), bool)
    step = max(1, _BLOCK_BYTES // max(1, features.itemsize * int(np.prod(features.shape[1:]))))
    for start in range(0, len(features), step):
        part = slice(start, start + step)
        largest = _largest(features[part])
        infinite[part] = ~np.isfinite(largest).all(axis=1)
        stray[part] = ((largest != 0) & ~present[part]).any(axis=1)
    refuse(infinite, "NaN or infinity in the features of {}".format)
    refuse(stray, "padding has features for {}".format)


def _largest(block: np.ndarray) -> np.ndarray:
    """Returns the largest magnitude of each row (..., dim), NaN where there is one."""
    if block.dtype != np.float16:
        return np.abs(block).max(axis=-1, initial=0)
    # Without their sign, IEEE numbers are in the order of their bits, NaN last; float16 is slow otherwise.
    bits = np.asarray(block).view(np.uint16) & 0x7FFF
    return bits.max(axis=-1, initial=0).view(np.float16)
