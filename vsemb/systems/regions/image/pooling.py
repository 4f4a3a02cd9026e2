"""Features of regions from a map of the whole image: one forward pass for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def pool_regions(maps: tf.Tensor | Sequence[tf.Tensor], boxes: tf.Tensor) -> tf.Tensor:
    """Averages a map over each box, its cells weighted by the area that they share with the box.

    A place of the map counts as constant over its cell, so a box may begin and end anywhere; the
    whole image gives the map's mean. Gradients flow into the map.

    Args:
        maps: (batch, height, width, channels), or several of the same batch, of any sides.
        boxes: float32 (batch, n, 4), `[x, y, w, h]` as fractions, within the image.

    Returns:
        float32 (batch, n, channels), those of several maps one behind the other; zeros for boxes
        without area, such as padding.

    Example:

    >>> place = tf.constant([[1.0, 4.0], [5.0, 6.0]])[None, :, :, None]
    >>> boxes = [[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.75, 0.5], [0.0, 0.0, 0.0, 0.0]]]
    >>> pool_regions(place, boxes)[0, :, 0].numpy().round(6).tolist()  # the second: (2 * 1 + 1 * 4) / 3
    [4.0, 2.0, 0.0]
    """
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    several = maps if isinstance(maps, (list, tuple)) else [maps]
    return tf.concat([_pooled(one, boxes) for one in several], axis=-1)


def _pooled(maps: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    across = _shares(boxes[..., 0], boxes[..., 2], maps.shape[2])  # (batch, n, width)
    down = _shares(boxes[..., 1], boxes[..., 3], maps.shape[1])
    weights = down[..., :, None] * across[..., None, :]
    cells, channels = maps.shape[1] * maps.shape[2], maps.shape[3]
    weights = tf.reshape(weights, tf.concat([tf.shape(boxes)[:2], [cells]], axis=0))
    return tf.matmul(weights, tf.reshape(tf.cast(maps, tf.float32), (-1, cells, channels)))


def _shares(start: tf.Tensor, length: tf.Tensor, cells: int) -> tf.Tensor:
    """Returns what part of each interval lies in each of the cells that divide 0..1: (batch, n, cells)."""
    low = start[..., None] * cells
    high = (start + length)[..., None] * cells
    cell = tf.range(cells, dtype=tf.float32)
    shared = tf.maximum(tf.minimum(high, cell + 1) - tf.maximum(low, cell), 0.0)
    return tf.math.divide_no_nan(shared, tf.reduce_sum(shared, axis=-1, keepdims=True))
