"""Images and words in the plane where they differ most (Kiros et al. 2014, figure 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.evaluation.principal_components import principal_components
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
