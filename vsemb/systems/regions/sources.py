"""Sources of regions of images, as parts with their options as fields, for `vsemb regions`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from vsemb.console import say
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Part, Probability, between, fields_of

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.systems.regions.detections import Detections
    from vsemb.systems.regions.region_store import RegionStore

Rank = Literal["objectness", "confidence"]


@dataclass(frozen=True)
class RegionSource(Part, family="region source"):
    """A source of the regions of a dataset's images.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def cache(self, dataset: StoredDataset) -> RegionStore:
        """Cache the regions in the dataset, or open them.

        Raises:
            DataError: if files or images cannot be read.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Boxes(RegionSource):
    """Base class of sources of boxes, whose features an image network computes.

    Attributes:
        count: boxes per image, besides the whole image.
        overlap: maximum overlap (IoU) of boxes.
        pooling: average the last feature map over each box, or embed each crop.
        backbone: a keras.applications network, SmallConvNet, or hub:PRESET; default: MobileNetV2.
        weights: imagenet, preset, random, a weights file, or a run trained from pixels; default: preset for a preset,
            else imagenet.
        size: width and height of the input in pixels; default: the network's.
        batch_size: images per batch.
    """

    count: Annotated[int, between(0, 500)] = 19
    overlap: Probability = 0.5
    pooling: Literal["map", "crops"] = "map"
    backbone: str | None = None
    weights: str | os.PathLike[str] | None = None
    size: Count | None = None
    batch_size: Count = 32

    def detections(self, dataset: StoredDataset) -> Detections | None:
        """Return the boxes of a detector; None for a source that makes boxes."""
        return None

    def cache(self, dataset: StoredDataset) -> RegionStore:
        from vsemb.runs.fine_tune import lent_backbone
        from vsemb.systems.regions.compute import cache_regions
        from vsemb.systems.regions.region_store import RegionConfig

        shared = fields_of(RegionConfig)
        values = {name: value for name, value in self.arguments().items() if name in shared}
        config = RegionConfig(**{"source": self.kind, **values})
        detections = self.detections(dataset)
        network = {"resize": "squash", "backbone": self.backbone, "size": self.size}
        with lent_backbone(self.weights, network) as (backbone, weights):
            return cache_regions(
                dataset, backbone, config, weights=weights, detections=detections, batch_size=self.batch_size
            )


@dataclass(frozen=True)
class Grid(Boxes, kind="grid"):
    """The best boxes of a grid of several scales."""


@dataclass(frozen=True)
class Ranked(Boxes):
    """Base class of boxes that can be ranked in two ways.

    Attributes:
        rank: rank boxes by contrast, or by confidence of a detector or classifier; default: confidence for detections,
            else contrast (objectness).
    """

    rank: Rank | None = None


@dataclass(frozen=True)
class SelectiveSearch(Ranked, kind="selective-search"):
    """Boxes of OpenCV's selective search; needs the extra `regions`."""


@dataclass(frozen=True)
class DetectedBoxes(Ranked, kind="detections"):
    """A detector's results: a list in COCO's format of {"image_id", "bbox": [x, y, w, h] in pixels, "score"}.

    The image_id of a detection is the key of an image in the dataset, with or without folders and ending, or the
    number in a file name such as 000000391895.jpg. Ids that the dataset lacks are left out, and an image without
    detections has only the whole image; notes report both counts. Boxes are in pixels of the stored images, unless
    `images` gives other sizes.

    Attributes:
        file: JSON file of the results.
        images: COCO annotations, whose images list id and file_name for other ids, and width and height of the
            detector's images for a dataset prepared with max_side.
    """

    file: str | os.PathLike[str] | None = None
    images: str | os.PathLike[str] | None = None

    def check(self) -> None:
        if self.file is None:
            raise invalid_argument("file", None, "the JSON file with a detector's results")

    def detections(self, dataset: StoredDataset) -> Detections:
        from vsemb.systems.regions.detections import read_detections

        assert self.file is not None
        detections = read_detections(self.file, dataset, self.images)
        for note in detections.notes:
            say(note)
        return detections


@dataclass(frozen=True)
class Published(RegionSource, kind="published"):
    """Region features that others computed.

    The files are bottom-up attention's .tsv, a folder of .npz files (x, bbox, image_w, image_h), or SCAN's .npy. The
    mean of the boxes stands for the whole image. A run on them cannot read new images.

    Attributes:
        files: .tsv or .npy files, or folders of .npz files.
        ids: for each .npy file, a file with one image name per line.
        count: first boxes per image that are used; default: 36.
    """

    files: tuple[str | os.PathLike[str], ...] = ()
    ids: tuple[str | os.PathLike[str], ...] = ()
    count: Count = 36

    def check(self) -> None:
        if not self.files:
            raise invalid_argument("files", self.files, "files of region features")

    def cache(self, dataset: StoredDataset) -> RegionStore:
        from vsemb.systems.regions.published import write_published

        store, notes = write_published(dataset, [*map(Path, self.files)], [*map(Path, self.ids)], count=self.count)
        for note in notes:
            say(note)
        return store
