"""Cached regions of images on disk: boxes and features, computed once, memory-mapped, for one dataset.

Files in `DATA/regions/<fingerprint>/`:

- features.npy: float16 (images, regions, dim); a row of zeros is padding.
- boxes.npy: float32 (images, regions, 4), [x, y, w, h] as fractions of the image's width and height. Region 0 is the
  whole image; the best boxes follow, best first.
- scores.npy: float32 (images, regions), ranking scores of the boxes.
- ids.npy: int64 (images,), ascending; row i of the other arrays is image ids[i].
- manifest.json: dataset, network, weights, boxes and preprocessing; without a network for published features.
- backbone.weights.h5: weights of the network, if it is known.
- classifier.weights.h5: weights of the network's classifier, if its confidence ranked the boxes.

Features are float16 on disk, which saves half of the space: 20 regions take 20 times the space of one vector per image.
Features are of the order of 1, so the relative error is 2^-11, less than the error of storing an image as JPEG. Values
too large for float16 are refused when written. Readers get float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from vsemb.data.features.files import CLASSIFIER_NAME, WEIGHTS_NAME
from vsemb.data.features.store import FeatureFolder
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, VsembError, invalid_argument
from vsemb.files import read_json, sha256_bytes
from vsemb.image.backbones import PREPROCESSING_VERSION, BackboneConfig
from vsemb.parts import Part, Probability, between
from vsemb.systems.regions.candidates import CANDIDATES, Candidates

# Part of every fingerprint of regions. Raise it if the grid, a score, cropping or pooling changes.
REGIONS_VERSION = "vsemb-regions-1"
#: The box of the first region of every image.
WHOLE_IMAGE = (0.0, 0.0, 1.0, 1.0)
_BLOCK_BYTES = 4 << 20
# Tolerance of corners, which are rounded sums of float32 numbers near 1.
_OUTSIDE = 1e-4


@dataclass(frozen=True)
class RegionConfig(Part):
    """Configuration of the regions of images, without the network.

    Attributes:
        source: source of candidate boxes: `"grid"` (a multi-scale grid, in graph), `"selective-search"` (OpenCV) or
            `"detections"` (a detector's results).
        count: boxes per image, besides the whole image; 0 for the whole image alone. The maximum is 500, since features
            of more regions would fill the disk.
        overlap: maximum intersection over union of two boxes; of two boxes above it, the better one is kept.
        pooling: `"map"` (means of the network's last map over each box, one forward pass per image) or `"crops"` (each
            box is cropped and embedded like an image, as in R-CNN).
        rank: ranking of boxes: `"objectness"` (contrast to the surroundings, from pixels alone) or `"confidence"` (of a
            detector, or of the network's own classifier). None for confidence with detections, and objectness
            otherwise.

    Example:

    >>> RegionConfig().rank, RegionConfig("detections").rank
    ('objectness', 'confidence')
    """

    source: Literal["grid", "selective-search", "detections"] = "grid"
    count: Annotated[int, between(0, 500)] = 19
    overlap: Probability = 0.5
    pooling: Literal["map", "crops"] = "map"
    rank: Literal["objectness", "confidence"] | None = None

    def check(self) -> None:
        ranks = self.candidates.ranks
        if self.rank is None:
            object.__setattr__(self, "rank", ranks[0])
        if self.rank not in ranks:
            fix = 'Use rank="objectness", or source="selective-search".'
            allowed = f"{' or '.join(map(repr, ranks))} for boxes of a {self.source}"
            raise invalid_argument("rank", self.rank, allowed, fix)

    @property
    def candidates(self) -> Candidates:
        """The candidates of the source."""
        return CANDIDATES[self.source]

    @property
    def by_classifier(self) -> bool:
        """Whether the network's own classifier ranks the boxes; a detector ranks its own."""
        return self.candidates.classified and self.rank == "confidence"


class RegionStore(FeatureFolder):
    """The cached regions of a dataset's images, see `vsemb.data.features.store.FeatureFolder`.

    Example:

    >>> store = RegionStore.find(Dataset.open("data/flickr8k"))  # doctest: +SKIP
    >>> store.rows(np.array([5, 3])).shape  # doctest: +SKIP
    (2, 20, 2176)
    """

    singular = "region"
    recipe = "dvsa"
    format = "vsemb-regions", 1
    keys = frozenset({"regions", "candidates_sha256"})
    arrays = {"features": (("float16",), (3,)), "boxes": (("float32",), (3,)), "scores": (("float32",), (2,))}

    def expected_fingerprint(self) -> str | None:
        if _is_published(self.manifest):
            return None
        try:
            return _fingerprint_of(self.manifest)
        except (TypeError, VsembError) as error:
            why = f"are damaged: backbone or regions in manifest.json cannot be read ({error})"
            raise self.unusable(self.directory, why) from error

    def check_rows(self, dataset: StoredDataset) -> None:
        super().check_rows(dataset)
        if _is_published(self.manifest):
            return
        for path in (self.directory / WEIGHTS_NAME, self.classifier_path):
            if path is not None and not path.is_file():
                why = f"are damaged: there is no {path.name}, which the regions of new images need"
                raise self.unusable(self.directory, why)

    def check(self, dataset: StoredDataset) -> None:
        called, count = self.called(self.directory), self.shape[:2]
        shapes = {name: array.shape for name, array in self._beside.items()}
        if shapes != {"boxes": (*count, 4), "scores": count}:
            raise DataError(f"{called} are damaged: features {self.shape}, {shapes}.")
        refuse_wrong_regions(self._features, **self._beside, ids=self.ids, dataset=dataset, what=called)

    @classmethod
    def _describe(cls, directory: Path) -> str:
        manifest = read_json(directory / "manifest.json", "region manifest")
        try:
            backbone, regions = manifest["backbone"], manifest["regions"]
            if backbone is None:
                return f"{directory.name} ({regions['count']} published boxes, {manifest['dim']} entries)"
            return (
                f"{directory.name} ({regions['count']} boxes by {regions['source']}, {backbone['name']} at "
                f"{backbone['size']}, {regions['pooling']}, {regions['rank']}, overlap {regions['overlap']}, "
                f"{manifest['dim']} entries)"
            )
        except (KeyError, TypeError):
            return f"{directory.name} (of unknown form)"

    @classmethod
    def find_alike(cls, dataset: StoredDataset, fingerprint: str, network: str) -> RegionStore:
        """Open the dataset's regions with a fingerprint, or the only regions of the same network.

        Another dataset has other detections, but may use the same network.

        Args:
            dataset: the dataset.
            fingerprint: fingerprint of the regions.
            network: fingerprint of their network.

        Raises:
            DataError: if no regions match, several regions have another fingerprint, or `open` refuses them.
        """
        folders = cls.folders(dataset)
        if fingerprint not in [folder.name for folder in folders]:
            alike = [folder for folder in folders if _network(folder) == network]
            if len(alike) == 1:
                return cls.open(alike[0], dataset)
        return cls.find(dataset, fingerprint)

    @property
    def network(self) -> str:
        """Fingerprint of backbone, weights, regions and preprocessing, without detections."""
        return _fingerprint_of(self.manifest, detections=False)

    @property
    def regions(self) -> RegionConfig:
        """Configuration of the regions."""
        return RegionConfig.from_json(self.manifest["regions"])

    @property
    def count(self) -> int:
        """Regions per image, including the whole image and padding."""
        return int(self._features.shape[1])

    @property
    def mean_count(self) -> float:
        """Mean number of regions per image, including the whole image, without padding."""
        return float(self._beside["boxes"].any(axis=-1).sum(axis=-1).mean())

    @property
    def details(self) -> dict[str, str]:
        return {"regions": f"{self.mean_count:.1f} per image on average, the whole image included"}

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "regions_mean": round(self.mean_count, 2)}

    @property
    def classifier_path(self) -> Path | None:
        """File of the classifier whose confidence ranked the boxes; None for other rankings."""
        return self.directory / CLASSIFIER_NAME if self.regions.by_classifier else None

    def rows(self, ids: np.ndarray, max_regions: int | None = None) -> np.ndarray:
        """Return the features of the regions of images.

        Args:
            ids: int64 (n,), image ids in any order; repeats are allowed.
            max_regions: number of first regions per image; None for all.

        Returns:
            float32 (n, count, dim); zeros are padding.

        Raises:
            DataError: if an id has no regions.
        """
        return self._features[:, :max_regions][self.positions(ids)].astype(np.float32)

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        """Return the boxes of the regions of images.

        Args:
            ids: int64 (n,), image ids.

        Returns:
            float32 (n, count, 4), `[x, y, w, h]` as fractions of the image's width and height; zeros are padding.
        """
        return self._beside["boxes"][self.positions(ids)]

    def scores(self, ids: np.ndarray) -> np.ndarray:
        """Return the ranking scores of the boxes: float32 (n, count)."""
        return self._beside["scores"][self.positions(ids)]


def region_fingerprint(
    backbone: BackboneConfig, weights_sha256: str, regions: RegionConfig, candidates_sha256: str | None = None
) -> str:
    """Return the fingerprint of regions: 16 hex digits.

    The fingerprint covers both configurations, the weights, the versions of the preprocessing, and the detections or
    classifier.

    Args:
        backbone: configuration of the network.
        weights_sha256: SHA-256 of the network's weights.
        regions: configuration of the regions.
        candidates_sha256: SHA-256 of the detections, or of the classifier that ranks the boxes.
    """
    content = {
        "backbone": backbone.identity(),
        "weights": weights_sha256,
        "regions": regions.to_json(),
        "candidates": candidates_sha256,
        "preprocessing": [PREPROCESSING_VERSION, REGIONS_VERSION],
    }
    return sha256_bytes(json.dumps(content, sort_keys=True).encode())[:16]


def _is_published(manifest: dict[str, Any]) -> bool:
    """Return whether the features are published ones, of an unknown network."""
    return manifest["backbone"] is None and manifest["weights_sha256"] is None


def _fingerprint_of(manifest: dict[str, Any], *, detections: bool = True) -> str:
    """Compute the fingerprint of a manifest's content, with or without the detections."""
    if _is_published(manifest):
        # The network behind published features is unknown.
        return f"published, {manifest['dim']} entries"
    backbone = BackboneConfig.from_json(manifest["backbone"])
    regions = RegionConfig.from_json(manifest["regions"])
    candidates = manifest["candidates_sha256"]
    if regions.candidates.detected and not detections:
        candidates = None
    return region_fingerprint(backbone, manifest["weights_sha256"], regions, candidates)


def _network(directory: Path) -> str | None:
    """Return the fingerprint of a folder without the detections; None if its manifest is not of this version."""
    try:
        return _fingerprint_of(read_json(directory / "manifest.json", "region manifest"), detections=False)
    except (KeyError, TypeError, VsembError):
        return None


def refuse_wrong_regions(
    features: np.ndarray, boxes: np.ndarray, scores: np.ndarray, *, ids: np.ndarray, dataset: StoredDataset, what: str
) -> None:
    """Check that regions are valid.

    Args:
        features: (n, count, dim), may be memory-mapped.
        boxes: (n, count, 4).
        scores: (n, count).
        ids: int64 (n,), image ids.
        dataset: the dataset.
        what: source of the regions, for the message.

    Raises:
        DataError: if a region is invalid; the error names the images.
    """

    def refuse(bad: Any, why: Callable[[str], str]) -> None:
        if bad.any():
            raise DataError(f"{what}: {why(dataset.name_images(ids[bad]))}.")

    present = np.asarray(boxes.any(axis=-1))  # (n, count)
    finite = np.isfinite(boxes).all(axis=(1, 2)) & np.isfinite(scores).all(axis=1)
    refuse(~finite, "NaN or infinity in the boxes or scores of {}".format)
    refuse((boxes[:, 0] != WHOLE_IMAGE).any(axis=-1), "the first region is not the whole image for {}".format)
    corner, size = boxes[..., :2], boxes[..., 2:]
    inside = (corner >= 0).all(-1) & (size > 0).all(-1) & (corner + size <= 1 + _OUTSIDE).all(-1)
    refuse((present & ~inside).any(axis=-1), "a box lies outside the image, or is empty, for {}".format)
    refuse((present[:, 1:] & ~present[:, :-1]).any(axis=-1), "a box comes after padding for {}".format)
    infinite = np.zeros(len(boxes), bool)
    stray = np.zeros(len(boxes), bool)
    step = max(1, _BLOCK_BYTES // max(1, features.itemsize * int(np.prod(features.shape[1:]))))
    for start in range(0, len(features), step):
        part = slice(start, start + step)
        largest = _largest(features[part])
        infinite[part] = ~np.isfinite(largest).all(axis=1)
        stray[part] = ((largest != 0) & ~present[part]).any(axis=1)
    refuse(infinite, "NaN or infinity in the features of {}".format)
    refuse(stray, "padding has features for {}".format)


def _largest(block: np.ndarray) -> np.ndarray:
    """Return the largest magnitude of each row (..., dim); NaN if the row has NaN."""
    if block.dtype != np.float16:
        return np.abs(block).max(axis=-1, initial=0)
    # Without the sign bit, IEEE numbers compare like their bits, with NaN last. Float16 arithmetic is slow.
    bits = np.asarray(block).view(np.uint16) & 0x7FFF
    return bits.max(axis=-1, initial=0).view(np.float16)
