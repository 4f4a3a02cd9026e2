"""Crops of images, in graph: the ten-crop protocol and a light augmentation for fine-tuning.

Averaging a network's features over ten crops of an image (four corners, the centre, and their
mirror images) was the standard way to use them: Krizhevsky et al. 2012, section 4.1; Kiros et al.
and VSE++ used such features.
"""

from __future__ import annotations

import tensorflow as tf

from vsemb.errors import invalid_argument


def ten_crop_source_size(size: int) -> int:
    """Returns the side that an image is resized to before ten crops of `size` are cut from it.

    It is `round(size * 256 / 224)`, the ratio of the original protocol.

    Example:

    >>> ten_crop_source_size(224)
    256
    """
    return round(size * 256 / 224)


def ten_crops(pixels: tf.Tensor, size: int) -> tf.Tensor:
    """Cuts four corners and the centre, then the mirror images of the five.

    Args:
        pixels: (batch, height, width, 3), at least `size` x `size`; usually
            `ten_crop_source_size(size)` on both sides.
        size: height and width of a crop in pixels.

    Returns:
        (batch, 10, size, size, 3) of the same dtype; the crops in the order upper left, upper right,
        lower left, lower right, centre, then the five mirrored.

    Raises:
        InvalidArgumentError: if the images are known to be smaller than the crops.

    Example:

    >>> ten_crops(tf.zeros((2, 256, 256, 3)), 224).shape
    TensorShape([2, 10, 224, 224, 3])
    """
    height, width = _sides(pixels, size)
    below, right = height - size, width - size
    corners = [(0, 0), (0, right), (below, 0), (below, right), (below // 2, right // 2)]
    five = tf.stack([pixels[:, y : y + size, x : x + size] for y, x in corners], axis=1)
    return tf.concat([five, five[:, :, :, ::-1]], axis=1)


def random_crop_flip(pixels: tf.Tensor, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Cuts one random crop from each image and mirrors half of them.

    Stateless: the same seed gives the same crops, whatever ran before, so that a resumed training
    sees what an uninterrupted one sees.

    Args:
        pixels: (batch, height, width, 3), at least `size` x `size`.
        size: height and width of a crop in pixels.
        seed: int (2,), as in `tf.random.stateless_uniform`.

    Returns:
        (batch, size, size, 3) of the same dtype.

    Raises:
        InvalidArgumentError: if the images are known to be smaller than the crops.

    Example:

    >>> random_crop_flip(tf.zeros((2, 256, 256, 3)), 224, seed=[1, 2]).shape
    TensorShape([2, 224, 224, 3])
    """
    height, width = _sides(pixels, size)
    draws = tf.random.stateless_uniform((tf.shape(pixels)[0], 3), seed)
    free = tf.cast(tf.stack([height - size + 1, width - size + 1]), tf.float32)
    corner = tf.cast(draws[:, :2] * free, tf.int32)
    down = corner[:, 0, None] + tf.range(size)  # (batch, size)
    across = corner[:, 1, None] + tf.range(size)
    across = tf.where(draws[:, 2:] < 0.5, across, across[:, ::-1])
    rows = tf.gather(pixels, down, axis=1, batch_dims=1)
    cut = tf.gather(rows, across[:, None, :] + tf.zeros_like(down)[:, :, None], axis=2, batch_dims=2)
    return tf.ensure_shape(cut, (pixels.shape[0], size, size, 3))


def _sides(pixels: tf.Tensor, size: int) -> tuple[tf.Tensor | int, tf.Tensor | int]:
    known, shape = pixels.shape[1:3], tf.shape(pixels)
    if any(side is not None and side < size for side in known):
        raise invalid_argument("size", size, f"at most the height and width of the pixels, {list(known)}")
    return (
        shape[1] if known[0] is None else known[0],
        shape[2] if known[1] is None else known[1],
    )
