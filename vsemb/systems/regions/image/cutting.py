"""Regions cut out of an image and resized, each to an image of its own, as R-CNN does (crop and forward)."""

from __future__ import annotations

import tensorflow as tf


def crop_regions(pixels: tf.Tensor, boxes: tf.Tensor, size: int) -> tf.Tensor:
    """Cuts boxes out of images and resizes each to a square, bilinear and with antialiasing.

    Each side is a product with a small matrix: the triangle filter of `tf.image.resize(...,
    antialias=True)`, as wide as a pixel of the crop or of the image, whichever is larger.
    (`tf.image.crop_and_resize` takes single pixels and leaves out those between them when it shrinks.)

    Args:
        pixels: (batch, height, width, 3), in any range.
        boxes: float32 (batch, n, 4), `[x, y, w, h]` as fractions, within the image.
        size: height and width of a crop in pixels.

    Returns:
        float32 (batch, n, size, size, 3); zeros for boxes without area, such as padding.

    Example:

    >>> pixels = tf.random.uniform((1, 8, 8, 3))
    >>> whole = crop_regions(pixels, [[[0.0, 0.0, 1.0, 1.0]]], size=8)
    >>> bool(tf.reduce_all(whole[:, 0] == pixels))
    True
    """
    boxes = tf.convert_to_tensor(boxes, tf.float32)
    pixels = tf.cast(pixels, tf.float32)
    down = _filters(boxes[..., 1], boxes[..., 3], pixels.shape[1], size)  # (batch, n, size, height)
    across = _filters(boxes[..., 0], boxes[..., 2], pixels.shape[2], size)
    rows = tf.einsum("bnih,bhwc->bniwc", down, pixels)
    return tf.einsum("bnjw,bniwc->bnijc", across, rows)


def _filters(start: tf.Tensor, length: tf.Tensor, pixels: int, size: int) -> tf.Tensor:
    """Returns the weights of an image's pixels in those of a crop: (batch, n, size, pixels)."""
    step = length[..., None, None] * (pixels / size)
    places = tf.range(size, dtype=tf.float32)[:, None] + 0.5
    centres = start[..., None, None] * pixels + places * step
    away = tf.abs(tf.range(pixels, dtype=tf.float32) + 0.5 - centres)
    weights = tf.maximum(1.0 - away / tf.maximum(step, 1.0), 0.0)
    weights = tf.where(step > 0, weights, 0.0)
    return tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))
