"""Arithmetic in the embedding space (Kiros et al. 2014, section 3.2 and equations 12-15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vsemb.errors import invalid_argument

Normalize = Callable[[Any], Any]

# A target this short beside the query is rounding, and has no direction to search in.
_NOTHING = 1e-4


def combine(
    query: np.ndarray, minus: Sequence[np.ndarray], plus: Sequence[np.ndarray], normalize: Normalize
) -> np.ndarray:
    """Takes words away from a query and adds others: image of a blue car - "blue" + "red".

    Equation 15: what is looked for is nearest to (query - negative + positive) / norm.

    Args:
        query: (dim,) the embedding of an image or a text.
        minus: embeddings (dim,) of the words taken away.
        plus: embeddings (dim,) of the words added.
        normalize: the geometry of the space, e.g. `Cosine().normalize`; (rows, dim) to the same.

    Returns:
        (dim,) float32.

    Raises:
        InvalidArgumentError: if nothing of the query is left.

    Example:

    >>> from vsemb.similarities import Cosine
    >>> blue, red = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    >>> combine(np.array([1.0, 0.0, 0.0]), [blue], [red], Cosine().normalize).tolist()
    [0.0, 1.0, 0.0]
    """
    target = np.array(query, np.float32)
    for vector in minus:
        target = target - vector
    for vector in plus:
        target = target + vector
    if np.linalg.norm(target) < _NOTHING * np.linalg.norm(query):
        raise invalid_argument("minus", "as much as there is", "words that leave something of the query")
    return np.asarray(normalize(target[None].astype(np.float32)), np.float32)[0]


def resort_by_mean(embeddings: np.ndarray) -> np.ndarray:
    """Sorts the best N results anew by their distance to their own mean.

    A result that is far from what the others show is often there by chance; Kiros et al. re-sort the
    results of their arithmetic so.

    Args:
        embeddings: (N, dim) of the N best results, best first.

    Returns:
        (N,) int64, the order: the nearest to the mean first, ties as they were.

    Example: the mean of 0, 10 and 5 is 5.

    >>> resort_by_mean(np.array([[0.0], [10.0], [5.0]])).tolist()
    [2, 0, 1]
    """
    embeddings = np.asarray(embeddings, np.float64)
    if not len(embeddings):
        return np.zeros(0, np.int64)
    distances = np.linalg.norm(embeddings - embeddings.mean(axis=0), axis=1)
    return np.argsort(distances, kind="stable").astype(np.int64)
