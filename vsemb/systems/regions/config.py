"""Which regions of an image a model sees, and how their features come about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from vsemb.errors import invalid_argument
from vsemb.parts import Part, Probability, between

# Part of every fingerprint of regions: raise it when the grid, a score, cropping or pooling changes.
REGIONS_VERSION = "vsemb-regions-1"
#: The box of the first region of every image.
WHOLE_IMAGE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class RegionConfig(Part):
    """Everything about the regions of images except the network that describes them.

    Attributes:
        source: where candidate boxes come from: `"grid"` (a multi-scale grid, in graph),
            `"selective-search"` (OpenCV's) or `"detections"` (a detector's results).
        count: boxes kept per image, besides the whole image; 0 for the whole image alone. More than 500 are
            refused: features of a dataset would fill its disk.
        overlap: of two boxes whose intersection over union is above this, the better one is kept.
        pooling: `"map"` (means of the network's last map over each box: one forward pass per image) or
            `"crops"` (each box is cut out and is an image of its own, as in R-CNN).
        rank: what makes a box better: `"objectness"` (contrast to its surroundings, of the pixels
            alone) or `"confidence"` (of a detector, or of the network's own classifier); None:
            confidence for detections, objectness for the others.

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
        if self.rank is None:
            object.__setattr__(self, "rank", "confidence" if self.source == "detections" else "objectness")
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
