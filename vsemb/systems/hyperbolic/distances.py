"""Distances of images and texts to the root, and images in the cones of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from keras import ops

from vsemb.ops.lorentz import MIN_RADIUS, cone_violation

# Pairs whose cones are computed at a time.
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of a split to the root.

    Attributes:
        images: (n,) float32, distances of the images to the root.
        texts: (m,) float32, distances of the texts to the root.
        nearer: share of the texts that are nearer to the root than their image.
        in_own: share of the texts whose cone contains their image.
        in_other: share of the texts whose cone contains the next image, which they do not describe.
        outside_own: mean angle by which an image lies outside the cone of its text, in degrees; 0 inside.
        outside_other: the same for the next image.
    """

    images: np.ndarray
    texts: np.ndarray
    nearer: float
    in_own: float
    in_other: float
    outside_own: float
    outside_other: float

    def of_texts(self) -> Mapping[str, float]:
        """Return the shares and angles by their names."""
        return {name: value for name, value in vars(self).items() if name not in ("images", "texts")}


def measure_distances(
    images: np.ndarray, texts: np.ndarray, rows: np.ndarray, min_radius: float = MIN_RADIUS
) -> Distances:
    """Measure the distances of images and texts to the root.

    Args:
        images: (n, dim) float32, tangent vectors at the root.
        texts: (m, dim) float32.
        rows: (m,) int64, row of the image of each text.
        min_radius: K of the cones.

    Example: the text is nearer to the root, on the line to its image.

    >>> images, texts = np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0]])
    >>> measured = measure_distances(images, texts, np.array([0]))
    >>> measured.nearer, measured.in_own, measured.in_other, round(measured.outside_other)
    (1.0, 1.0, 0.0, 131)
    """
    of_images, of_texts = np.linalg.norm(images, axis=1), np.linalg.norm(texts, axis=1)

    def outside(rows: np.ndarray) -> np.ndarray:
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]
        angles = [cone_violation(images[rows[block]], texts[block], min_radius) for block in blocks]
        return np.concatenate([ops.convert_to_numpy(values) for values in angles])

    own, other = outside(rows), outside((rows + 1) % len(images))
    return Distances(
        of_images,
        of_texts,
        nearer=float(np.mean(of_texts < of_images[rows])),
        in_own=float(np.mean(own == 0)),
        in_other=float(np.mean(other == 0)),
        outside_own=float(np.degrees(own.mean())),
        outside_other=float(np.degrees(other.mean())),
    )
