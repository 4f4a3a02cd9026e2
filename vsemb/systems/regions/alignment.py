"""Words and the regions that they belong to; needs no TensorFlow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


def phrases(path: Iterable[int]) -> list[tuple[int, int, int]]:
    """Cuts the regions of the words of a sentence into phrases, runs of words on one region.

    Args:
        path: (T,) the region of each word, -1 for padding.

    Returns:
        The region, the first word and the number of words of each phrase, in order.

    Example:

    >>> phrases([0, 2, 2, 2, 0, -1])
    [(0, 0, 1), (2, 1, 3), (0, 4, 1)]
    """
    found, start = [], 0
    for region, run in itertools.groupby(int(region) for region in path):
        length = len(list(run))
        if region >= 0:
            found.append((region, start, length))
        start += length
    return found


@dataclass(frozen=True)
class Phrase:
    """Neighbouring words on one region.

    Attributes:
        words: in their order.
        region: the row of the region, 0 for the whole image.
        box: `(x, y, w, h)`, as fractions of the image's width and height or in pixels.
        scores: how well each word fits the region.

    Example:

    >>> Phrase(("a", "dog"), 1, (0.5, 0.0, 0.5, 1.0), (0.25, 1.5)).text
    'a dog'
    """

    words: tuple[str, ...]
    region: int
    box: tuple[float, float, float, float]
    scores: tuple[float, ...]

    @property
    def score(self) -> float:
        """The sum over the words."""
        return math.fsum(self.scores)

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(self.words)


@dataclass(frozen=True, eq=False)
class AlignedWords:
    """Which region of an image each word of a sentence belongs to.

    Attributes:
        words: as many as the model reads.
        regions: (words,) int64, a row of `boxes` for each word.
        scores: (words,) float32, how well each word fits its region.
        boxes: (regions, 4) float32, `[x, y, w, h]` as fractions of the image's width and height; the whole
            image first.
    """

    words: Sequence[str]
    regions: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray

    @property
    def phrases(self) -> list[Phrase]:
        """The runs of words on one region, in their order."""
        found = []
        for region, start, length in phrases(self.regions):
            part = slice(start, start + length)
            x, y, width, height = self.boxes[region].tolist()
            scores = tuple(self.scores[part].tolist())
            found.append(Phrase(tuple(self.words[part]), region, (x, y, width, height), scores))
        return found
