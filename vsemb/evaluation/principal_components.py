"""The plane in which vectors differ most: principal components, for pictures of an embedding space."""

from __future__ import annotations

import numpy as np

from vsemb.errors import DataError, invalid_argument


def principal_components(embeddings: np.ndarray, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Projects vectors onto the directions in which they differ most.

    Args:
        embeddings: (n, dim) float, at least two of them.
        count: number of directions, at most n - 1 and dim.

    Returns:
        points: (n, count) float64, centred. The sign of a direction is such that its largest entry, by
            absolute value, is positive, so that the same vectors give the same picture.
        shares: (count,) float64, the share of the variance along each direction; zeros where all vectors
            are the same.

    Raises:
        InvalidArgumentError: for a count out of range.
        DataError: if an embedding is not finite.

    Example:

    >>> points, shares = principal_components(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), 1)
    >>> points.round(6).tolist(), shares.tolist()
    ([[-2.0], [0.0], [2.0]], [1.0])
    """
    embeddings = np.asarray(embeddings, np.float64)
    most = min(len(embeddings) - 1, embeddings.shape[1])
    if not 1 <= count <= most:
        allowed = f"an integer from 1 to {most}" if most >= 1 else "at least two vectors to project"
        raise invalid_argument("count", count, allowed)
    if not np.isfinite(embeddings).all():
        raise DataError("The embeddings hold NaN or infinity; nothing was projected.")
    centred = embeddings - embeddings.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = directions[np.arange(count), np.argmax(np.abs(directions), axis=1)]
    directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
    total = float(np.sum(lengths**2))
    shares = lengths[:count] ** 2 / total if total > 0 else np.zeros(count)
    return centred @ directions.T, shares
