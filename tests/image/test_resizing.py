"""Resizing of presets: equal to Keras' own layer, for every setting and shape of image."""

from __future__ import annotations

import io
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from vsemb.image.decode import decode_images
from vsemb.image.resizing import INTERPOLATIONS, Resizing, resize_image

SIZE = 16
#: Wide and tall, with odd and even differences of the sides, smaller and larger than the result, and thin.
SHAPES = [(40, 61), (75, 32), (33, 32), (9, 12), (1, 90)]
ASPECTS = [(False, False), (True, False), (False, True)]


def pixels(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)


@pytest.mark.parametrize(("interpolation", "antialias"), list(itertools.product(INTERPOLATIONS, (False, True))))
def test_pixels_are_those_of_keras(interpolation: str, antialias: bool) -> None:
    for (crop, pad), shape in itertools.product(ASPECTS, SHAPES):
        image = pixels(shape).astype(np.float32)
        layer = keras.layers.Resizing(
            SIZE, SIZE, interpolation, crop_to_aspect_ratio=crop, pad_to_aspect_ratio=pad, antialias=antialias
        )
        resized = resize_image(tf.constant(image), SIZE, Resizing(interpolation, antialias, crop, pad))
        # Bars are added after one axis was resized, so sums of float32 are in another order.
        np.testing.assert_allclose(resized, layer(image), atol=2e-3, err_msg=f"{shape}, crop {crop}, pad {pad}")


def test_bytes_are_decoded_at_full_scale_and_resized_as_keras_does() -> None:
    """At a reduced scale, or with antialiasing, the pixels of a large JPEG are others."""
    images, rows = [], []
    for shape, form in (((150, 200), "JPEG"), ((200, 90), "JPEG"), ((40, 61), "PNG")):
        smooth = Image.fromarray(pixels((20, 20))).resize(shape[::-1], Image.Resampling.BICUBIC)
        written = io.BytesIO()
        smooth.save(written, form)
        images.append(np.asarray(Image.open(written).convert("RGB")))
        rows.append(written.getvalue())
    grey = io.BytesIO()
    Image.fromarray(pixels((30, 50))).convert("L").save(grey, "PNG")
    images.append(np.asarray(Image.open(grey).convert("RGB")))
    rows.append(grey.getvalue())
    clear = np.concatenate([pixels((50, 30)), pixels((50, 30), 1)[..., :1]], axis=-1)
    rows.append(tf.io.encode_png(clear).numpy())
    alpha = clear[..., 3:] / 255
    images.append(clear[..., :3] * alpha + 255 * (1 - alpha))
    layer = keras.layers.Resizing(SIZE, SIZE, "bicubic", crop_to_aspect_ratio=True)
    wanted = [np.clip(layer(image.astype(np.float32)), 0, 255) for image in images]
    decoded, valid = decode_images(tf.constant(rows), SIZE, resizing=Resizing("bicubic", crop_to_aspect_ratio=True))
    assert valid.numpy().all()
    # Rounding to whole levels.
    np.testing.assert_allclose(decoded, wanted, atol=0.51)


def test_a_padded_image_is_never_larger_than_its_limit() -> None:
    """Padded to a square first, this image of 60,000 pixels would have 3,600,000,000."""
    thin = tf.stack([tf.io.encode_png(tf.fill((1, 60_000, 3), tf.constant(200, tf.uint8)))])
    pixels, valid = decode_images(thin, SIZE, resizing=Resizing("nearest", pad_to_aspect_ratio=True))
    assert valid.numpy().all() and pixels.shape == (1, SIZE, SIZE, 3)


def test_the_longer_side_is_limited_for_tall_images_too() -> None:
    tall = tf.stack([tf.io.encode_png(tf.zeros((60_000, 1, 3), tf.uint8))])
    assert not decode_images(tall, 900, resizing=Resizing(pad_to_aspect_ratio=True))[1].numpy().any()


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("rows", "columns"), [(40, 61), (75, 30), (12, 31), (24, 24), (9, 3), (12, 27), (17, 12)])
def test_the_crop_after_a_resize_is_the_centre_of_the_whole_one(
    rows: int, columns: int, interpolation: str, even: bool
) -> None:
    """The slow way: resize the whole image as torchvision does, sides rounded down, and cut."""
    pixels = np.random.default_rng(rows).uniform(0, 255, (rows, columns, 3)).astype(np.float32)
    size, shorter = 12, min(rows, columns)
    sides = rows * size // shorter, columns * size // shorter
    whole = tf.image.resize(pixels, sides, interpolation, antialias=True)
    top, left = (round((side - size) / 2) if even else (side - size) // 2 for side in sides)
    resizing = Resizing(interpolation, True, crop_after_resize=True, even_offset=even)
    received = resize_image(tf.constant(pixels), size, resizing)
    # Both scales are float32.
    np.testing.assert_allclose(received, whole[top : top + size, left : left + size], atol=0.02)
