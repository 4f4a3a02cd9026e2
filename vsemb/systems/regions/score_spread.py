"""How far the scores of words and regions lie apart: the unit that an affinity is given in."""

from __future__ import annotations

import math

import numpy as np


class ScoreSpread:
    """The standard deviation of the scores of a word's regions over all words, some captions at a time.

    Each word's scores are taken from their own mean: what counts is how much better a word's best region is
    than its others, which an affinity (beta of Karpathy and Fei-Fei 2015, equation 12) has to outweigh.

    Example: the means are 2 and 5, so that four scores are 1 away from theirs.

    >>> spread = ScoreSpread()
    >>> spread.add(np.array([[[1.0, 3.0], [4.0, 6.0]]]), np.ones((1, 2), bool), np.ones((1, 2), bool))
    >>> spread.value
    1.0
    """

    def __init__(self) -> None:
        self._squares, self._count = 0.0, 0

    def add(self, scores: np.ndarray, words: np.ndarray, regions: np.ndarray) -> None:
        """Counts some captions in.

        Args:
            scores: (captions, steps, regions) float; those of padding may be anything.
            words: (captions, steps) bool, whether there is a word.
            regions: (captions, regions) bool, whether there is a region.
        """
        real = words[:, :, None] & regions[:, None]
        known = np.where(real, scores, 0).astype(np.float64)
        means = known.sum(axis=2, keepdims=True) / np.maximum(real.sum(axis=2, keepdims=True), 1)
        # A broken score shows in the value.
        with np.errstate(invalid="ignore"):
            self._squares += float(np.where(real, (known - means) ** 2, 0).sum())
        self._count += int(real.sum())

    @property
    def value(self) -> float:
        """The standard deviation; 0 where nothing was counted, and NaN or infinity where a score is."""
        return math.sqrt(self._squares / max(self._count, 1))
