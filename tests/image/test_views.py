"""Views: ten crops, bad rows and batches of any size, through the network."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb.exporting.served_inputs import ImageInput
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.decode import decode_crops
from vsemb.image.views import (
    decode_views,
    encode_views,
    random_crop_flip,
    ten_crop_source_size,
    ten_crops,
)

SMALL = BackboneConfig("SmallConvNet", size=32)


def encoded(count: int) -> tf.Tensor:
    images = np.random.default_rng(6).integers(0, 256, (count, 20, 30, 3), dtype=np.uint8)
    return tf.stack([tf.io.encode_png(image) for image in images])


def test_ten_crops_are_averaged_and_a_bad_row_is_zero():
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    backbone = build_backbone(config)
    rows = tf.concat([encoded(2), [b"bad"]], axis=0)
    features, valid = ImageInput(config, backbone)(rows)
    views, _ = decode_views(rows, config)
    assert views.shape == (3, 10, 32, 32, 3) and valid.numpy().tolist() == [True, True, False]
    by_view = encode_views(backbone, views).numpy()
    for view in range(10):
        np.testing.assert_allclose(by_view[:, view], backbone(views[:, view]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(features[:2], by_view[:2].mean(axis=1), rtol=1e-5, atol=1e-5)
    assert not features[2].numpy().any()


@pytest.mark.parametrize("sides", [(61, 40), (40, 61), (50, 50), (20, 33)])
def test_short_side_crops_match_pillow(sides):
    """The shorter side becomes round(32 * 256 / 224) = 37 pixels, the longer one keeps the ratio."""
    small = np.random.default_rng(3).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize(sides, Image.Resampling.BICUBIC)
    row = tf.stack([tf.io.encode_png(np.asarray(image)), b"bad"])
    width, height = (side * 37 // min(sides) for side in sides)
    resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    below, right = height - 32, width - 32
    places = [(0, 0), (0, right), (below, 0), (below, right), (below // 2, right // 2)]
    expected = np.stack([resized[y : y + 32, x : x + 32] for y, x in places])
    config = BackboneConfig("SmallConvNet", size=32, crops=10, resize="short-side")
    pixels, valid = decode_views(row, config)
    assert pixels.shape == (2, 10, 32, 32, 3) and valid.numpy().tolist() == [True, False]
    # Pillow rounds to whole numbers after each of its two passes.
    assert np.abs(pixels[0, :5] - expected).max() <= 1.0
    np.testing.assert_array_equal(pixels[0, 5:], pixels[0, :5].numpy()[:, :, ::-1])
    one, _ = decode_views(row, dataclasses.replace(config, crops=1))
    np.testing.assert_array_equal(one, pixels[:, 4:5])


def test_short_side_crops_of_a_jpeg_that_is_decoded_at_an_eighth():
    small = np.random.default_rng(3).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((450, 301), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95)
    one, _ = decode_crops(tf.constant([buffer.getvalue()]), 32, 37)
    # 450 * 37 / 301 = 55.3 columns; the centre starts in row 2 and column 11.
    expected = np.asarray(image.resize((55, 37), Image.Resampling.BILINEAR), np.float32)[2:34, 11:43]
    assert np.abs(one[0, 0] - expected).mean() < 2.0


def test_short_side_is_the_same_in_a_graph_of_any_number_of_rows():
    config = dataclasses.replace(SMALL, resize="short-side")
    function = tf.function(
        lambda rows: decode_views(rows, config)[0], autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    np.testing.assert_array_equal(function(encoded(2)), decode_views(encoded(2), config)[0])
    assert function(tf.zeros([0], tf.string)).shape == (0, 1, *decode_views(encoded(1), config)[0].shape[2:])


def test_crops_larger_than_the_shorter_side():
    with raises_argument("shorter_side"):
        decode_crops(tf.constant([b""]), 32, 31)


def test_images_in_a_graph_with_any_number_of_rows():
    features = ImageInput(SMALL, build_backbone(SMALL))
    function = tf.function(
        features,
        autograph=False,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    assert function(tf.zeros([0], tf.string))[0].shape == (0, 256)
    rows = encoded(3)
    np.testing.assert_allclose(function(rows)[0], features(rows)[0], rtol=1e-4, atol=1e-5)
    assert function.get_concrete_function().structured_outputs[0].shape.as_list() == [None, 256]


def test_views_need_a_known_size():
    function = tf.function(
        lambda pixels: encode_views(build_backbone(SMALL), pixels),
        input_signature=[tf.TensorSpec([None, 1, None, None, 3])],
        autograph=False,
    )
    with raises_argument("pixels"):
        function.get_concrete_function()


def coordinates(batch: int, height: int, width: int) -> tf.Tensor:
    """Pixel (y, x) of image b holds (b, y, x)."""
    grid = np.stack(np.meshgrid(np.arange(batch), np.arange(height), np.arange(width), indexing="ij"), -1)
    return tf.constant(grid.astype(np.float32))


def test_source_size_is_the_protocols():
    assert [ten_crop_source_size(size) for size in (224, 32, 64)] == [256, 37, 73]


def test_ten_crops_are_corners_centre_and_their_mirrors():
    crops = ten_crops(coordinates(2, 8, 10), 6).numpy()
    assert crops.shape == (2, 10, 6, 6, 3)
    # Free room: 2 rows, 4 columns; the centre starts at half of it.
    corners = [(0, 0), (0, 4), (2, 0), (2, 4), (1, 2)]
    for image in range(2):
        for number, (y, x) in enumerate(corners):
            np.testing.assert_array_equal(crops[image, number, 0, 0], [image, y, x])
            np.testing.assert_array_equal(crops[image, number, 5, 5], [image, y + 5, x + 5])
            np.testing.assert_array_equal(crops[image, number + 5, 0, 0], [image, y, x + 5])
            np.testing.assert_array_equal(crops[image, number + 5], crops[image, number, :, ::-1])


def test_ten_crops_of_unknown_shape_in_a_graph():
    function = tf.function(
        lambda pixels: ten_crops(pixels, 4), autograph=False, input_signature=[tf.TensorSpec([None, None, None, 3])]
    )
    pixels = coordinates(3, 6, 5)
    np.testing.assert_array_equal(function(pixels), ten_crops(pixels, 4))


def test_random_crops_are_contiguous_windows_half_of_them_mirrored():
    crops = random_crop_flip(coordinates(400, 7, 9), 5, seed=[3, 4]).numpy()
    assert crops.shape == (400, 5, 5, 3)
    steps = crops[:, 0, 1, 2] - crops[:, 0, 0, 2]
    assert set(steps) == {1.0, -1.0}
    assert 150 < (steps > 0).sum() < 250  # 200 expected, standard deviation 10
    for image, crop in enumerate(crops):
        assert (crop[..., 0] == image).all()
        np.testing.assert_array_equal(np.diff(crop[..., 1], axis=0), 1)
        np.testing.assert_array_equal(np.diff(crop[..., 2], axis=1), steps[image])
    # Every corner occurs: 3 x 5 places.
    assert len({(crop[..., 1].min(), crop[..., 2].min()) for crop in crops}) == 15


def test_random_crops_depend_on_the_seed_alone():
    pixels = coordinates(8, 9, 9)
    first = random_crop_flip(pixels, 4, seed=[1, 2])
    np.testing.assert_array_equal(first, random_crop_flip(pixels, 4, seed=[1, 2]))
    assert not np.array_equal(first, random_crop_flip(pixels, 4, seed=[1, 3]))


def test_a_whole_image_crop_is_the_image_or_its_mirror():
    pixels = coordinates(6, 4, 4)
    for before, after in zip(pixels, random_crop_flip(pixels, 4, seed=[0, 1]), strict=True):
        assert np.array_equal(after, before) or np.array_equal(after, before[:, ::-1])


@pytest.mark.parametrize("cut", [lambda p: ten_crops(p, 9), lambda p: random_crop_flip(p, 9, [0, 0])])
def test_crops_larger_than_the_image(cut):
    with raises_argument("size"):
        cut(coordinates(1, 8, 12))
