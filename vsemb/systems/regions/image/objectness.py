"""Objectness: how much a box looks as if it held one thing, by the colours in it and around it.

Everything is exact or rounded alike wherever it stands in a batch (sums of whole numbers, and only
operations that IEEE 754 rounds correctly), so that which boxes an image gets never depends on its
neighbours. That is also why the network's activations have no say: their last bits do.
"""

from __future__ import annotations

import tensorflow as tf

from vsemb.systems.regions.image.grid import CELLS

# The ring around a box is this part of the box's shorter side, and at least a cell.
_RING = 0.1
# Deviations of colour (of 0..1) within the ring below this count little: noise, compression.
_NOISE = 0.2
# How much less a box in a corner of the image is worth than one in the middle.
_CENTRE = 0.5
# Moves of one edge that refining tries, in cells.
_MOVES = (-1, 1, -3, 3)
# Refined boxes have at least this many cells a side.
_SMALLEST = 4


def objectness(pixels: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Returns how much boxes differ from what surrounds them.

    With the mean colour m and the variance V of the ring around a box (a tenth of its shorter side
    wide; colours in 0..1, variances summed over the three channels), the mean D of the squared distance
    to m of the pixels inside, the part r of the ring that lies within the image, the box's area A and
    the distance d of its centre to the image's, both in units of the image's sides:

        objectness = sqrt(D) / (sqrt(V) + 0.2) * r * A^(1/8) * (1 - d / 2)

    A box that fits an object has an even ring (V small) of another colour (D large). A margin lowers D,
    a part of the object raises V. The factors r and d are for photographs, where corners of sky would
    win otherwise. Measured on 64 x 64 cells, to which boxes are rounded; 0 for an image of one colour
    and for boxes of zeros.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.
        boxes: (batch, n, 4), or (n, 4) for the same in every image; `[x, y, w, h]` as fractions.

    Returns:
        float32 (batch, n), 0 or more.

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
    """Returns sums of colours and of their squares over all cells up to a corner.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.

    Returns:
        float64 (batch, 65 * 65, 4): the three channels, then the sum of their squares.
    """
    if list(pixels.shape[1:3]) != [CELLS, CELLS]:
        # Means over cells: anything smoother takes an object's colour into the ring around it.
        pixels = tf.image.resize(pixels, (CELLS, CELLS), method="area")
    cells = tf.cast(tf.round(pixels), tf.float64)
    cells = tf.concat([cells, tf.reduce_sum(cells * cells, axis=-1, keepdims=True)], axis=-1)
    sums = tf.cumsum(tf.cumsum(tf.pad(cells, [[0, 0], [1, 0], [1, 0], [0, 0]]), axis=1), axis=2)
    return tf.reshape(sums, (-1, (CELLS + 1) ** 2, 4))


def contrast(integral: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    """Returns the objectness of boxes given as edges.

    Args:
        integral: what `integral_image` returned.
        edges: int32 (batch, n, 4) or (n, 4), `[left, top, right, bottom]` in cells, none of them empty.

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
    # A box as large as the image has no ring, and every sum over it is 0.
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


def refine(integral: tf.Tensor, edges: tf.Tensor, steps: int) -> tf.Tensor:
    """Moves the edges of boxes, one at a time, to where their objectness is largest.

    Args:
        integral: what `integral_image` returned.
        edges: int32 (batch, n, 4), in cells; boxes of zeros stay so.
        steps: moves at most.

    Returns:
        int32 (batch, n, 4).
    """
    moves = [[by if edge == place else 0 for place in range(4)] for edge in range(4) for by in _MOVES]
    moves = tf.constant([[0, 0, 0, 0], *moves], tf.int32)
    real = tf.reduce_any(edges != 0, axis=-1, keepdims=True)

    def step(edges: tf.Tensor) -> tuple[tf.Tensor]:
        tried = tf.clip_by_value(edges[:, :, None] + moves, 0, CELLS)  # (batch, n, moves, 4)
        fits = tf.reduce_all(tried[..., 2:] - tried[..., :2] >= _SMALLEST, axis=-1, keepdims=True)
        tried = tf.where(fits, tried, edges[:, :, None])
        shape = tf.shape(tried)
        scores = contrast(integral, tf.reshape(tried, (shape[0], -1, 4)))
        best = tf.argmax(tf.reshape(scores, shape[:3]), axis=-1, output_type=tf.int32)
        return (tf.gather(tried, best, axis=2, batch_dims=2),)

    # Padding takes part as the whole image, so that no sum is over an empty box.
    start = tf.where(real, edges, tf.constant([0, 0, CELLS, CELLS], tf.int32))
    (moved,) = tf.while_loop(lambda _: True, step, (start,), maximum_iterations=steps)
    return tf.where(real, moved, 0)


def _over_channels(values: tf.Tensor) -> tf.Tensor:
    # Written out: the order of a reduction is not promised to be the same everywhere.
    return values[..., 0] + values[..., 1] + values[..., 2]


def _sums(integral: tf.Tensor, edges: tf.Tensor) -> tf.Tensor:
    left, top, right, bottom = tf.unstack(edges, axis=-1)

    def at(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        place = y * (CELLS + 1) + x
        return tf.gather(integral, place, axis=1, batch_dims=place.shape.rank - 1)

    return at(right, bottom) - at(left, bottom) - at(right, top) + at(left, top)
