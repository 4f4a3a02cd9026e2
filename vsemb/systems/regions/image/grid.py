"""A multi-scale grid of boxes: candidates that need no library and no weights."""

from __future__ import annotations

import functools
import math

import numpy as np

#: The image's side in cells. Boxes of the grid begin and end at cells, and objectness is measured on them.
CELLS = 64

# A box is as large as a square of this side, in cells; the steps between are less than IoU 0.5 apart.
_SIDES = (9, 13, 19, 28, 42, 56)
# Width over height.
_SHAPES = (0.4, 0.7, 1.0, 1.6)
# Boxes of one size are this part of their width, or height, apart.
_STEP = 1 / 3


@functools.cache
def grid_edges() -> np.ndarray:
    """Returns the grid as edges: int32 (boxes, 4), `[left, top, right, bottom]` in cells, sorted."""
    edges: set[tuple[int, int, int, int]] = set()
    for side in _SIDES:
        for shape in _SHAPES:
            width, height = round(side * math.sqrt(shape)), round(side / math.sqrt(shape))
            if max(width, height) <= CELLS:
                edges.update((x, y, x + width, y + height) for x in _places(width) for y in _places(height))
    grid = np.array(sorted(edges), np.int32)
    grid.setflags(write=False)
    return grid


def grid_boxes() -> np.ndarray:
    """Returns the boxes of the grid: float32 (boxes, 4), `[x, y, w, h]` as fractions of the image.

    Six sizes from 2 % to 77 % of the image's area, four shapes from upright to lying, and a third of a
    side between two of one size.

    Example:

    >>> grid_boxes().shape
    (2637, 4)
    """
    edges = grid_edges()
    return np.concatenate([edges[:, :2], edges[:, 2:] - edges[:, :2]], axis=1).astype(np.float32) / CELLS


def _places(length: int) -> list[int]:
    free = CELLS - length
    steps = math.ceil(free / max(1.0, _STEP * length))
    return [free * step // max(1, steps) for step in range(steps + 1)]
