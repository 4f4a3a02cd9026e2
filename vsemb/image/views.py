"""From image bytes to features in graph, and crops for features and training.

Averaging features over ten crops of an image (four corners, the centre, and their mirror images) follows Krizhevsky
et al. 2012, section 4.1. Kiros et al. and VSE++ used such features.
"""

from __future__ import annotations

import keras

from vsemb.errors import invalid_argument
from vsemb.image.backbones import BackboneConfig
from vsemb.image.decode import CENTRE, CORNERS_AND_CENTRE, decode_crops, decode_images
from vsemb.ops.tensorflow import tf


def ten_crop_source_size(size: int) -> int:
    """Return the side to which an image is resized before ten crops of `size` are cut.

    It is `round(size * 256 / 224)`, the ratio of the original protocol.

    Example:

    >>> ten_crop_source_size(224)
    256
    """
    return round(size * 256 / 224)


def ten_crops(pixels: tf.Tensor, size: int) -> tf.Tensor:
    """Cut the four corners and the centre, then mirror the five crops.

    Args:
        pixels: (batch, height, width, 3), at least `size` x `size`; usually
            `ten_crop_source_size(size)` on both sides.
        size: height and width of a crop in pixels.

    Returns:
        (batch, 10, size, size, 3) of the same dtype; the crops in the order upper left, upper right,
        lower left, lower right, centre, then the five mirrored.

    Raises:
        InvalidArgumentError: if the static size of the images is smaller than the crops.

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
    """Cut one random crop from each image and mirror each with probability 0.5.

    The same seed gives the same crops in any process, so a resumed training gets the same images as an uninterrupted
    one.

    Args:
        pixels: (batch, height, width, 3), at least `size` x `size`.
        size: height and width of a crop in pixels.
        seed: int (2,), as in `tf.random.stateless_uniform`.

    Returns:
        (batch, size, size, 3) of the same dtype.

    Raises:
        InvalidArgumentError: if the static size of the images is smaller than the crops.

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
    """Return height and width, as integers where they are static."""
    sides = list(pixels.shape[1:3])
    if any(side is not None and side < size for side in sides):
        raise invalid_argument("size", size, f"at most the height and width of the pixels, {sides}")
    height, width = (tf.shape(pixels)[axis] if pixels.shape[axis] is None else pixels.shape[axis] for axis in (1, 2))
    return height, width


def decode_views(encoded: tf.Tensor, config: BackboneConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Decode images to the views (crops) that the network gets.

    Args:
        encoded: string (batch,), the bytes of JPEG or PNG images.
        config: configuration of the network; `size`, `crops` and `resize` define the views.

    Returns:
        `(pixels, valid)`: float32 (batch, crops, size, size, 3) in 0..255; bool (batch,).
    """
    if config.resize == "short-side":
        places = (CENTRE,) if config.crops == 1 else CORNERS_AND_CENTRE
        pixels, valid = decode_crops(encoded, config.size, ten_crop_source_size(config.size), places)
        if config.crops > 1:
            pixels = tf.concat([pixels, pixels[:, :, :, ::-1]], axis=1)
        return pixels, valid
    if config.crops == 1:
        pixels, valid = decode_images(encoded, config.size, resizing=config.resizing)
        return pixels[:, None], valid
    pixels, valid = decode_images(encoded, ten_crop_source_size(config.size), resizing=config.resizing)
    return ten_crops(pixels, config.size), valid


def encode_views(backbone: keras.Model, pixels: tf.Tensor) -> tf.Tensor:
    """Run the network on views: (batch, crops, size, size, 3) to float32 (batch, crops, dim)."""
    batch, crops, *sides = pixels.shape
    if crops is None or None in sides:
        raise invalid_argument("pixels", pixels.shape, "a shape known but for the batch")
    rows = tf.shape(pixels)[0]
    # TensorFlow 2.20's optimized convolutions fail on an empty batch in a graph, so it is padded to one image.
    none = tf.cast(tf.equal(rows, 0), tf.int32)
    pixels = tf.pad(pixels, tf.stack([[0, none], *[[0, 0]] * 4]))
    features = tf.cast(backbone(tf.reshape(pixels, (-1, *sides)), training=False), tf.float32)
    features = tf.reshape(features, (-1, crops, features.shape[-1]))[:rows]
    return tf.ensure_shape(features, (batch, crops, features.shape[-1]))
