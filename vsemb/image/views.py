"""From image bytes to features, in graph: the one way, for cached features and for serving alike."""

from __future__ import annotations

import keras
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.image.backbones import BackboneConfig
from vsemb.image.crops import ten_crop_source_size, ten_crops
from vsemb.image.decode import decode_images


def decode_views(encoded: tf.Tensor, config: BackboneConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes images to the views of them that the network is given.

    Args:
        encoded: string (batch,), the bytes of JPEG or PNG images.
        config: its `size` and `crops` say which views.

    Returns:
        `(pixels, valid)`: float32 (batch, crops, size, size, 3) in 0..255; bool (batch,).
    """
    if config.crops == 1:
        pixels, valid = decode_images(encoded, config.size)
        return pixels[:, None], valid
    pixels, valid = decode_images(encoded, ten_crop_source_size(config.size))
    return ten_crops(pixels, config.size), valid


def encode_views(backbone: keras.Model, pixels: tf.Tensor) -> tf.Tensor:
    """Runs the network on views: (batch, crops, size, size, 3) to float32 (batch, crops, dim)."""
    batch, crops, *sides = pixels.shape
    if crops is None or None in sides:
        raise invalid_argument("pixels", pixels.shape, "a shape known but for the batch")
    rows = tf.shape(pixels)[0]
    # TensorFlow 2.20's optimised convolutions fail on an empty batch in a graph: it gets one image.
    none = tf.cast(tf.equal(rows, 0), tf.int32)
    pixels = tf.pad(pixels, tf.stack([[0, none], *[[0, 0]] * 4]))
    features = tf.cast(backbone(tf.reshape(pixels, (-1, *sides)), training=False), tf.float32)
    features = tf.reshape(features, (-1, crops, features.shape[-1]))[:rows]
    return tf.ensure_shape(features, (batch, crops, features.shape[-1]))


def encode_images(backbone: keras.Model, config: BackboneConfig, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes images and runs the network on their views.

    Args:
        backbone: what `build_backbone(config)` returned.
        config: its configuration.
        encoded: string (batch,), the bytes of JPEG or PNG images.

    Returns:
        `(features, valid)`: float32 (batch, dim), averaged over crops, zero where not valid; bool
        (batch,).
    """
    pixels, valid = decode_views(encoded, config)
    features = tf.reduce_mean(encode_views(backbone, pixels), axis=1)
    return tf.where(valid[:, None], features, 0.0), valid
