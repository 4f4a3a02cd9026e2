"""Images and words in the plane where they differ most (Kiros et al. 2014, figure 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.report.space import Picture, Space
from vsemb.report.words import Family

#: Images shown at most.
IMAGES = 36
# Left free at the edges, in percent.
_EDGE = 7.0


@dataclass(frozen=True)
class Plane:
    """A picture of images and words.

    Attributes:
        family: the kind of words.
        images: each with its place, in percent from the left and from the top.
        words: the same.
        shares: percent of the variance along the two axes.
    """

    family: str
    images: list[tuple[Picture, float, float]]
    words: list[tuple[str, float, float]]
    shares: tuple[float, float]


def draw_plane(space: Space, family: Family, seed: int) -> Plane:
    """Projects a family's words and images that show one of them onto their first two components.

    Images and words are first centred, each kind by itself: otherwise the first component tells mostly
    that an image is no word.
    """
    generator = np.random.default_rng(seed)
    each = max(1, IMAGES // len(family.images))
    rows: list[int] = []
    for of_word in family.images.values():
        rows += generator.permutation(of_word)[:each].tolist()
    words = list(family.images)
    vectors = [space.images[rows], space.embed(words)]
    points, shares = principal_components(np.concatenate([v - v.mean(axis=0) for v in vectors]))
    low, high = points.min(axis=0), points.max(axis=0)
    places = _EDGE + (100 - 2 * _EDGE) * (points - low) / np.maximum(high - low, 1e-12)
    places[:, 1] = 100 - places[:, 1]
    x, y = places.round(2).T.tolist()
    pictures = [space.picture(row) for row in rows]
    count = len(rows)
    return Plane(
        family.name,
        list(zip(pictures, x[:count], y[:count], strict=True)),
        list(zip(words, x[count:], y[count:], strict=True)),
        (100 * float(shares[0]), 100 * float(shares[1])),
    )


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
