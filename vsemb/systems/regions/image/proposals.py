"""Boxes of an image from its pixels alone: the grid's best, moved to fit."""

from __future__ import annotations

import tensorflow as tf

from vsemb.systems.regions.image.grid import CELLS, grid_boxes, grid_edges
from vsemb.systems.regions.image.objectness import contrast, integral_image, refine
from vsemb.systems.regions.image.ranking import best_boxes

# Boxes of the grid that are refined, at least; some of them end at the same place.
_REFINED = 64
_STEPS = 6


def propose(pixels: tf.Tensor, count: int, overlap: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Proposes boxes: the best of the grid by objectness, refined, without those that overlap.

    Args:
        pixels: (batch, height, width, 3), RGB in 0..255.
        count: boxes an image.
        overlap: the intersection over union that two of them may have.

    Returns:
        boxes: float32 (batch, count, 4), `[x, y, w, h]` as fractions, best first, all different; zeros where
            an image has fewer. An image of one colour has none.
        scores: float32 (batch, count), their objectness.

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


def _repeated(edges: tf.Tensor) -> tf.Tensor:
    """Returns which boxes (batch, n, 4), in cells, are the same as one before them: (batch, n)."""
    side = CELLS + 1
    number = tf.reduce_sum(edges * tf.constant([side**3, side**2, side, 1], tf.int32), axis=-1)
    same = tf.equal(number[:, :, None], number[:, None, :])
    places = tf.range(tf.shape(number)[1])
    return tf.reduce_any(same & (places < places[:, None]), axis=2)


def _without_zero(scores: tf.Tensor) -> tf.Tensor:
    """Makes the score of boxes that show nothing NaN, which `best_boxes` never takes."""
    return tf.where(scores > 0, scores, float("nan"))
