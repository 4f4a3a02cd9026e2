"""What a client answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What texts or images were embedded to.

    Attributes:
        embedding: (n, dim) float32, zero in rows that are not valid.
        valid: (n,) bool, whether there was anything to embed: a word, an image.
    """

    embedding: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class Classes:
    """How images were classified.

    Attributes:
        classes: the c names, in the order of the scores.
        scores: (n, c) float32, the higher the better; zero in rows that are not valid.
        valid: (n,) bool.
    """

    classes: list[str]
    scores: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class Found:
    """What was found for each query, best first.

    Attributes:
        ids: (n, k) int64, -1 in rows that are not valid; fewer than k columns where the model holds fewer.
        scores: (n, k) float32.
        keys: n lists of k names, empty in rows that are not valid.
        valid: (n,) bool.
    """

    ids: np.ndarray
    scores: np.ndarray
    keys: list[list[str]]
    valid: np.ndarray
