"""Words aligned with regions, without TensorFlow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


def runs(path: Iterable[int]) -> list[tuple[int, int, int]]:
    """Cut a sentence into runs of words on one region.

    Args:
        path: (T,) int, the region of each word; -1 for words without a region.

    Returns:
        (region, first word, number of words) of each run, in order.

    Example:

    >>> runs([0, 2, 2, -1])
    [(0, 0, 1), (2, 1, 2), (-1, 3, 1)]
    """
    parts, start = [], 0
    for region, words in itertools.groupby(int(region) for region in path):
        length = len(list(words))
        parts.append((region, start, length))
        start += length
    return parts


def phrases(path: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return the `runs` of words that have a region.

    Example:

    >>> phrases([0, 2, 2, 2, 0, -1])
    [(0, 0, 1), (2, 1, 3), (0, 4, 1)]
    """
    return [run for run in runs(path) if run[0] >= 0]


@dataclass(frozen=True)
class Phrase:
    """Neighbouring words on one region.

    Attributes:
        words: the words in order.
        region: row of the region, 0 for the whole image.
        box: `(x, y, w, h)`, as fractions of the image's width and height or in pixels.
        scores: score of each word with the region.

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
        """Sum of the scores of the words."""
        return math.fsum(self.scores)

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(self.words)


@dataclass(frozen=True, eq=False)
class AlignedWords:
    """The words of a sentence, each with a region of an image.

    Attributes:
        words: the words that the model reads.
        regions: (words,) int64, row of `boxes` for each word.
        scores: (words,) float32, score of each word with its region.
        boxes: (regions, 4) float32, `[x, y, w, h]` as fractions of the image's width and height. The first box is the
            whole image.
    """

    words: Sequence[str]
    regions: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray

    @property
    def phrases(self) -> list[Phrase]:
        """Runs of words on one region, in the order of the sentence."""
        aligned = []
        for region, start, length in phrases(self.regions):
            part = slice(start, start + length)
            x, y, width, height = self.boxes[region].tolist()
            scores = tuple(self.scores[part].tolist())
            aligned.append(Phrase(tuple(self.words[part]), region, (x, y, width, height), scores))
        return aligned
