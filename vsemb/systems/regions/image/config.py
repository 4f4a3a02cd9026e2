"""Which regions of an image a model sees, and how their features come about."""

from __future__ import annotations

import dataclasses
from typing import Any

from vsemb.errors import invalid_argument, unknown_name

# Part of every fingerprint of regions: raise it when the grid, a score, cropping or pooling changes.
REGIONS_VERSION = "vsemb-regions-1"

SOURCES = ("grid", "selective-search", "detections")
POOLINGS = ("map", "crops")
RANKS = ("objectness", "confidence")
#: More boxes an image than this are refused: features of a dataset would fill its disk.
MOST_BOXES = 500


@dataclasses.dataclass(frozen=True)
class RegionConfig:
    """Everything about the regions of images except the network that describes them.

    Attributes:
        source: where candidate boxes come from: `"grid"` (a multi-scale grid, in graph),
            `"selective-search"` (OpenCV's) or `"detections"` (a detector's results).
        count: boxes kept of an image, besides the whole image; 0 for the whole image alone.
        overlap: of two boxes whose intersection over union is above this, the better one is kept.
        pooling: `"map"` (means of the network's last map over each box: one forward pass an image) or
            `"crops"` (each box is cut out and is an image of its own, as in R-CNN).
        rank: what makes a box better: `"objectness"` (contrast to its surroundings, of the pixels
            alone) or `"confidence"` (of a detector, or of the network's own classifier); empty or
            None: confidence for detections, objectness for the others.

    Example:

    >>> RegionConfig().rank, RegionConfig("detections").rank
    ('objectness', 'confidence')
    """

    source: str = "grid"
    count: int = 19
    overlap: float = 0.5
    pooling: str = "map"
    rank: str = ""

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise unknown_name("source", self.source, SOURCES)
        if not isinstance(self.count, int) or isinstance(self.count, bool) or not 0 <= self.count <= MOST_BOXES:
            raise invalid_argument("count", self.count, f"a number of boxes from 0 to {MOST_BOXES}")
        if not isinstance(self.overlap, (int, float)) or isinstance(self.overlap, bool):
            raise invalid_argument("overlap", self.overlap, "a number")
        if not 0 <= self.overlap <= 1:
            raise invalid_argument("overlap", self.overlap, "a number from 0 to 1")
        object.__setattr__(self, "overlap", float(self.overlap))
        if self.pooling not in POOLINGS:
            raise unknown_name("pooling", self.pooling, POOLINGS)
        if not self.rank:
            object.__setattr__(self, "rank", "confidence" if self.source == "detections" else "objectness")
        if self.rank not in RANKS:
            raise unknown_name("rank", self.rank, RANKS)
        if self.source == "grid" and self.rank == "confidence":
            fix = 'Use rank="objectness", or source="selective-search".'
            raise invalid_argument("rank", self.rank, "'objectness' for boxes of a grid", fix)

    @property
    def by_classifier(self) -> bool:
        """Whether the network's own classifier ranks the boxes; a detector ranks its own."""
        return self.source == "selective-search" and self.rank == "confidence"

    @property
    def in_graph(self) -> bool:
        """Whether boxes are proposed in graph; where not, the caller gives candidates."""
        return self.source == "grid"

    def to_json(self) -> dict[str, Any]:
        """Returns the configuration as a JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RegionConfig:
        """Builds the configuration from what `to_json` returned; an unknown key is an error."""
        fields = [field.name for field in dataclasses.fields(cls)]
        for key in value:
            if key not in fields:
                raise unknown_name("region field", key, fields)
        return cls(**value)
