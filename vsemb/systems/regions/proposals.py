"""Candidate boxes of an image from its pixels, and the selection of the best boxes.

- `propose`, in graph: the boxes of a multi-scale grid with the largest objectness, with refined edges.
- `selective_search`: selective search of OpenCV (Uijlings et al. 2013), the candidates of R-CNN. Needs the extra
  `regions`.

Objectness compares the colours inside and around a box; it is large for a box that fits one object. The boxes of an
image never depend on the rest of its batch. All results are exact, or rounded equally at every place of a batch: they
use sums of whole numbers, and only operations that IEEE 754 rounds correctly. Network activations are not used, since
their last bits depend on the batch.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from vsemb.errors import missing_extra
from vsemb.ops.tensorflow import tf

#: Cells per side of an image. Boxes of the grid have edges between cells, and objectness is measured on cells.
CELLS = 64

# Sides of squares with the area of a box, in cells. Neighbouring sizes differ by an IoU of about 0.5.
_SIDES = (9, 13, 19, 28, 42, 56)
# Ratios of width to height.
_SHAPES = (0.4, 0.7, 1.0, 1.6)
# Distance of boxes of one size, as a share of their width or height.
_STEP = 1 / 3

# Width of the ring around a box, as a share of the box's shorter side; at least one cell.
_RING = 0.1
# Added to the standard deviation of colour in the ring, in 0..1, so that noise and compression have little effect.
_NOISE = 0.2
# Weight of the distance between a box's centre and the image's centre.
_CENTRE = 0.5

# Minimum number of boxes of the grid that are refined; more than needed, since some become equal.
_REFINED = 64
# Moves of one edge in refinement, in cells, and number of moves.
_MOVES, _STEPS = (-1, 1, -3, 3), 6
# Minimum side of refined boxes, in cells.
_SMALLEST = 4

_GONE, _HIGHEST = -float("inf"), 1e38

# Longer side for selective search in pixels, as wide as images for R-CNN; larger images are shrunk. It takes seconds
# per image.
_LONGEST = 500
# Minimum side of its boxes, as a share of the image's side; smaller boxes are specks and seams.
_SHORTEST = 1 / 32


def propose(pixels: tf.Tensor, count: int, overlap: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Propose boxes: the boxes of the grid with the largest objectness, refined, without overlapping ones.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.
        count: boxes per image.
        overlap: maximum intersection over union of two boxes.

    Returns:
        boxes: float32 (batch, count, 4), `[x, y, w, h]` as fractions, best first, all different. Images with fewer
            boxes are padded with zeros; an image of one colour gets only padding.
        scores: float32 (batch, count), objectness of the boxes.

    Example:

    >>> pixels = tf.pad(tf.fill((1, 16, 16, 3), 255.0), [[0, 0], [8, 40], [24, 24], [0, 0]])
    >>> propose(pixels, count=3, overlap=0.5)[0].numpy()[0, 0].tolist()
    [0.375, 0.125, 0.25, 0.25]
    """
    integral = integral_image(pixels)
    scores = tf.cast(contrast(integral, tf.constant(grid_edges())), tf.float32)
    _, _, places = best_boxes(grid_boxes(), _without_zero(scores), max(_REFINED, 2 * count), max(overlap, 0.5))
    with_padding = tf.pad(tf.constant(grid_edges()), [[0, 1], [0, 0]])
    edges = tf.gather(with_padding, tf.where(places < 0, len(grid_edges()), places))
    edges = refine(integral, edges, _STEPS)
    boxes = tf.cast(tf.concat([edges[..., :2], edges[..., 2:] - edges[..., :2]], axis=-1), tf.float32) / CELLS
    real = tf.reduce_any(edges != 0, axis=-1)
    whole = tf.constant([0, 0, CELLS, CELLS], tf.int32)
    scores = tf.cast(contrast(integral, tf.where(real[..., None], edges, whole)), tf.float32)
    scores = tf.where(_repeated(edges), 0.0, scores)
    best, best_scores, _ = best_boxes(boxes, _without_zero(scores), count, overlap)
    return best, best_scores


def _without_zero(scores: tf.Tensor) -> tf.Tensor:
    """Replace scores <= 0 by NaN, which `best_boxes` never takes."""
    return tf.where(scores > 0, scores, float("nan"))


def _repeated(edges: tf.Tensor) -> tf.Tensor:
    """Return which boxes (batch, n, 4), in cells, equal an earlier box: (batch, n) bool."""
    side = CELLS + 1
    number = tf.reduce_sum(edges * tf.constant([side**3, side**2, side, 1], tf.int32), axis=-1)
    same = tf.equal(number[:, :, None], number[:, None, :])
    places = tf.range(tf.shape(number)[1])
    return tf.reduce_any(same & (places < places[:, None]), axis=2)


@functools.cache
def grid_edges() -> np.ndarray:
    """Return the edges of the grid's boxes: int32 (boxes, 4), `[left, top, right, bottom]` in cells, sorted."""
    edges: set[tuple[int, int, int, int]] = set()
    for side in _SIDES:
        for shape in _SHAPES:
            width, height = round(side * math.sqrt(shape)), round(side / math.sqrt(shape))
            if max(width, height) <= CELLS:
                edges.update((x, y, x + width, y + height) for x in _places(width) for y in _places(height))
    grid = np.array(sorted(edges), np.int32)
    grid.setflags(write=False)
    return grid


def _places(length: int) -> list[int]:
    free = CELLS - length
    steps = math.ceil(free / max(1.0, _STEP * length))
    return [free * step // max(1, steps) for step in range(steps + 1)]


def grid_boxes() -> np.ndarray:
    """Return the boxes of the grid: float32 (boxes, 4), `[x, y, w, h]` as fractions of the image.

    The grid has six sizes from 2 % to 77 % of the image's area, and four shapes from upright to wide. Boxes of one size
    and shape are a third of their side apart.

    Example:

    >>> grid_boxes().shape
    (2637, 4)
    """
    edges = grid_edges()
    return np.concatenate([edges[:, :2], edges[:, 2:] - edges[:, :2]], axis=1).astype(np.float32) / CELLS


def objectness(pixels: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Compute the objectness of boxes: their contrast to a ring around them.

        objectness = sqrt(D) / (sqrt(V) + 0.2) * r * A^(1/8) * (1 - d / 2)

    The ring is a tenth of the box's shorter side wide. Colours are in 0..1. The symbols are:

    - V: variance of the colours in the ring, summed over the three channels.
    - D: mean squared distance of the pixels inside to the mean colour of the ring.
    - r: share of the ring within the image.
    - A: area of the box, in units of the image's sides.
    - d: distance between the centres of box and image, in units of the image's sides.

    A box that fits an object has an even ring (V small) of another colour (D large). A margin around the object lowers
    D. A part of the object in the ring raises V. In photographs, corners of sky would have the largest values without
    the factors with r and d. Boxes are rounded to 64 x 64 cells. Images of one colour and boxes of zeros have
    objectness 0.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.
        boxes: (batch, n, 4), or (n, 4) for the same boxes in every image; `[x, y, w, h]` as fractions.

    Returns:
        float32 (batch, n), >= 0.

    Example:

    >>> pixels = tf.pad(tf.fill((1, 16, 16, 3), 255.0), [[0, 0], [24, 24], [24, 24], [0, 0]])
    >>> fits, part, margin = objectness(pixels, [[0.375, 0.375, 0.25, 0.25], [0.4, 0.4, 0.2, 0.2],
    ...                                          [0.35, 0.35, 0.3, 0.3]]).numpy()[0]
    >>> bool(fits > margin > part)
    True
    """
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    corners = tf.concat([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], axis=-1)
    edges = tf.cast(tf.round(corners * CELLS), tf.int32)
    low = tf.clip_by_value(edges[..., :2], 0, CELLS - 1)
    edges = tf.concat([low, tf.clip_by_value(edges[..., 2:], low + 1, CELLS)], axis=-1)
    scores = contrast(integral_image(pixels), edges)
    return tf.where(tf.reduce_all(boxes[..., 2:] > 0, axis=-1), tf.cast(scores, tf.float32), 0.0)


def integral_image(pixels: tf.Tensor) -> tf.Tensor:
    """Compute sums of colours and of their squares over all cells above and left of each corner.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.

    Returns:
        float64 (batch, 65 * 65, 4): the three channels, then the sum of their squares.
    """
    if list(pixels.shape[1:3]) != [CELLS, CELLS]:
        # Means over cells: smoother methods mix an object's colour into the ring around it.
        pixels = tf.image.resize(pixels, (CELLS, CELLS), method="area")
    cells = tf.cast(tf.round(pixels), tf.float64)
    cells = tf.concat([cells, tf.reduce_sum(cells * cells, axis=-1, keepdims=True)], axis=-1)
    sums = tf.cumsum(tf.cumsum(tf.pad(cells, [[0, 0], [1, 0], [1, 0], [0, 0]]), axis=1), axis=2)
    return tf.reshape(sums, (-1, (CELLS + 1) ** 2, 4))


def contrast(integral: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    """Compute the objectness of boxes given as edges.

    Args:
        integral: result of `integral_image`.
        edges: int32 (batch, n, 4) or (n, 4), `[left, top, right, bottom]` in cells; boxes must not be empty.

    Returns:
        float64 (batch, n).
    """
    low, high = edges[..., :2], edges[..., 2:]
    sides = high - low
    ring = tf.maximum(1, tf.cast(tf.round(_RING * tf.cast(tf.reduce_min(sides, -1), tf.float64)), tf.int32))
    around = tf.concat([tf.maximum(low - ring[..., None], 0), tf.minimum(high + ring[..., None], CELLS)], axis=-1)
    inside, outside = _sums(integral, edges), _sums(integral, around)
    area = tf.cast(sides[..., 0] * sides[..., 1], tf.float64)
    whole = tf.cast(tf.reduce_prod(sides + 2 * ring[..., None], axis=-1), tf.float64) - area
    spread = around[..., 2:] - around[..., :2]
    seen = tf.cast(spread[..., 0] * spread[..., 1], tf.float64) - area
    # The ring of a box as large as the image is empty, and all sums over it are 0.
    ring_sums, cells = outside - inside, tf.maximum(seen, 1.0)
    mean = ring_sums[..., :3] / cells[..., None]
    squared = _over_channels(mean * mean)
    uneven = tf.maximum(ring_sums[..., 3] / cells - squared, 0.0)
    inner = (inside[..., 3] - 2 * _over_channels(mean * inside[..., :3])) / area + squared
    distance = tf.sqrt(tf.maximum(inner, 0.0)) / (tf.sqrt(uneven) + 255 * _NOISE)
    middle = tf.cast(low + high, tf.float64) / (2 * CELLS) - 0.5
    off = tf.sqrt(middle[..., 0] * middle[..., 0] + middle[..., 1] * middle[..., 1])
    size = tf.sqrt(tf.sqrt(tf.sqrt(area / CELLS**2)))
    return distance * (seen / whole) * size * (1 - _CENTRE * off)


def _over_channels(values: tf.Tensor) -> tf.Tensor:
    # Written out, since the order of a reduction is not guaranteed.
    return values[..., 0] + values[..., 1] + values[..., 2]


def _sums(integral: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    left, top, right, bottom = tf.unstack(edges, axis=-1)

    def at(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        place = y * (CELLS + 1) + x
        return tf.gather(integral, place, axis=1, batch_dims=place.shape.rank - 1)

    return at(right, bottom) - at(left, bottom) - at(right, top) + at(left, top)


def refine(integral: tf.Tensor, edges: tf.Tensor, steps: int) -> tf.Tensor:
    """Move the edges of boxes, one at a time, to increase their objectness.

    Args:
        integral: result of `integral_image`.
        edges: int32 (batch, n, 4), in cells; boxes of zeros stay zeros.
        steps: maximum number of moves.

    Returns:
        int32 (batch, n, 4).
    """
    # No move, then each move of each edge.
    moves = np.kron(np.eye(4), np.array([_MOVES]).T)
    moves = tf.constant(np.concatenate([np.zeros((1, 4)), moves]), tf.int32)
    real = tf.reduce_any(edges != 0, axis=-1, keepdims=True)

    def step(edges: tf.Tensor) -> tuple[tf.Tensor]:
        tried = tf.clip_by_value(edges[:, :, None] + moves, 0, CELLS)  # (batch, n, moves, 4)
        fits = tf.reduce_all(tried[..., 2:] - tried[..., :2] >= _SMALLEST, axis=-1, keepdims=True)
        tried = tf.where(fits, tried, edges[:, :, None])
        shape = tf.shape(tried)
        scores = contrast(integral, tf.reshape(tried, (shape[0], -1, 4)))
        best = tf.argmax(tf.reshape(scores, shape[:3]), axis=-1, output_type=tf.int32)
        return (tf.gather(tried, best, axis=2, batch_dims=2),)

    # Padding is replaced by the whole image, so no sum is over an empty box.
    start = tf.where(real, edges, tf.constant([0, 0, CELLS, CELLS], tf.int32))
    (moved,) = tf.while_loop(lambda _: True, step, (start,), maximum_iterations=steps)
    return tf.where(real, moved, 0)


def best_boxes(
    boxes: tf.Tensor, scores: tf.Tensor, count: int, overlap: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Select boxes by greedy non-maximum suppression: take the best box, drop boxes that overlap it, and repeat.

    The result does not depend on the rest of the batch: rows are independent, and of equal scores the first box is
    taken.

    Args:
        boxes: (batch, n, 4), or (n, 4) for the same boxes in every image; `[x, y, w, h]`. Boxes without area, such as
            padding, are never taken.
        scores: (batch, n), larger is better; boxes with score NaN are never taken.
        count: maximum number of boxes to take.
        overlap: boxes with a larger intersection over union with a taken box are dropped.

    Returns:
        boxes: float32 (batch, count, 4), best first, padded with zeros.
        scores: float32 (batch, count), padded with zeros.
        places: int32 (batch, count), indices of the boxes, padded with -1.

    Example:

    >>> boxes = [[[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.5, 0.5, 0.5, 0.5]]]
    >>> best_boxes(boxes, [[0.9, 0.8, 0.7]], count=3, overlap=0.5)[2].numpy().tolist()
    [[0, 2, -1]]
    """
    scores = tf.convert_to_tensor(scores, tf.float32)
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    batch, n = tf.unstack(tf.shape(scores))
    boxes = tf.broadcast_to(boxes, tf.stack([batch, n, 4]))
    possible = tf.reduce_all(boxes[..., 2:] > 0, axis=-1) & ~tf.math.is_nan(scores)
    # Minus infinity marks taken and dropped boxes. Scores are clipped, since `tf.argmax` skips the lowest float too.
    ranked = tf.clip_by_value(scores, -_HIGHEST, _HIGHEST)
    ranked = tf.where(possible, ranked, _GONE)
    # One additional box that is never taken, for images without boxes.
    ranked = tf.pad(ranked, [[0, 0], [0, 1]], constant_values=_GONE)
    boxes = tf.pad(boxes, [[0, 0], [0, 1], [0, 0]])
    low, high, area = boxes[..., :2], boxes[..., :2] + boxes[..., 2:], boxes[..., 2] * boxes[..., 3]
    columns = tf.range(n + 1)

    def take(step: tf.Tensor, left: tf.Tensor, taken: tf.TensorArray) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        best = tf.argmax(left, axis=1, output_type=tf.int32)  # (batch,)
        found = tf.gather(left, best, batch_dims=1) > _GONE
        chosen = [tf.gather(values, best[:, None], batch_dims=1) for values in (low, high, area)]
        sides = tf.maximum(tf.minimum(high, chosen[1]) - tf.maximum(low, chosen[0]), 0.0)
        common = sides[..., 0] * sides[..., 1]  # (batch, n + 1)
        same = tf.math.divide_no_nan(common, area + chosen[2] - common)
        left = tf.where((same > overlap) | (columns == best[:, None]), _GONE, left)
        return step + 1, left, taken.write(step, tf.where(found, best, -1))

    # At least one step, since an empty array cannot be stacked if the batch size is unknown.
    steps = max(count, 1)
    taken = tf.TensorArray(tf.int32, size=steps, element_shape=ranked.shape[:1])
    _, _, taken = tf.while_loop(
        lambda step, *_: step < steps, take, (tf.constant(0), ranked, taken), maximum_iterations=steps
    )
    places = tf.transpose(tf.reshape(taken.stack(), tf.stack([steps, batch])))[:, :count]
    real = places >= 0
    at = tf.where(real, places, n)
    best = tf.gather(boxes, at, batch_dims=1)
    best_scores = tf.where(real, tf.gather(ranked, at, batch_dims=1), 0.0)
    return best, best_scores, places


def selective_search(pixels: np.ndarray) -> np.ndarray:
    """Find boxes by merging similar neighbouring segments step by step (the "fast" strategies).

    OpenCV orders the boxes partly at random. Here the largest boxes come first, so an image always gives the same
    boxes. This order is not a ranking of quality.

    Args:
        pixels: uint8 (height, width, 3), RGB.

    Returns:
        float32 (n, 4), `[x, y, w, h]` as fractions of the image's width and height, all different. A photograph has
        some hundred to two thousand boxes.

    Raises:
        MissingExtraError: if OpenCV with its contributed modules is not installed.
    """
    try:
        import cv2

        # The type stubs come from one of two OpenCV distributions, depending on the order of installation.
        create = vars(cv2)["ximgproc"].segmentation.createSelectiveSearchSegmentation
    except (ImportError, KeyError) as error:  # plain `opencv-python` lacks the module ximgproc
        raise missing_extra("opencv-contrib-python-headless", "regions") from error
    longest = max(pixels.shape[:2])
    if longest > _LONGEST:
        sides = [max(1, round(side * _LONGEST / longest)) for side in pixels.shape[1::-1]]
        pixels = cv2.resize(pixels, sides, interpolation=cv2.INTER_AREA)
    search = create()
    search.setBaseImage(np.ascontiguousarray(pixels[..., ::-1]))  # OpenCV's order is blue, green, red
    search.switchToSelectiveSearchFast()
    rectangles = np.unique(np.asarray(search.process()).reshape(-1, 4), axis=0)
    rectangles = rectangles[np.argsort(-rectangles[:, 2] * rectangles[:, 3], kind="stable")]
    height, width = pixels.shape[:2]
    boxes = (rectangles / [width, height, width, height]).astype(np.float32)
    return boxes[(boxes[:, 2:] >= _SHORTEST).all(axis=1)]
