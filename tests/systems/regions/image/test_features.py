"""Features of regions: means of a map over boxes, and crops."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights
from vsemb.systems.regions.image import (
    build_classifier,
    crop_regions,
    feature_maps,
    pool_regions,
    save_classifier_weights,
)

RANDOM = np.random.default_rng(3)
WHOLE = np.array([0, 0, 1, 1], np.float32)


def boxes_within(batch: int, n: int) -> np.ndarray:
    sides = RANDOM.uniform(0.05, 0.9, (batch, n, 2))
    return np.concatenate([RANDOM.uniform(0, 1, (batch, n, 2)) * (1 - sides), sides], -1).astype(np.float32)


def test_means_over_boxes_are_weighted_by_area():
    places = RANDOM.normal(size=(2, 3, 5, 4)).astype(np.float32)
    boxes = boxes_within(2, 6)
    boxes[0, 0], boxes[0, 1], boxes[1, 5] = WHOLE, [0.2, 1 / 3, 0.2, 1 / 3], 0
    got = pool_regions(places, boxes).numpy()
    for image in range(2):
        for number, (x, y, w, h) in enumerate(boxes[image].astype(float)):
            total, area = np.zeros(4), 0.0
            for row in range(3):
                for column in range(5):
                    across = max(0, min(5 * (x + w), column + 1) - max(5 * x, column))
                    down = max(0, min(3 * (y + h), row + 1) - max(3 * y, row))
                    total += across * down * places[image, row, column]
                    area += across * down
            expected = total / area if area else total
            np.testing.assert_allclose(got[image, number], expected, rtol=1e-4, atol=1e-5)  # float32 sums
    np.testing.assert_allclose(got[0, 0], places[0].mean((0, 1)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[0, 1], places[0, 1, 1], rtol=1e-5, atol=1e-6)  # exactly one cell
    assert not got[1, 5].any()


def test_several_maps_are_put_one_behind_the_other():
    maps = [tf.random.normal((2, 4, 4, 3)), tf.cast(tf.random.normal((2, 2, 2, 5)), tf.bfloat16)]
    boxes = boxes_within(2, 3)
    got = pool_regions(maps, boxes)
    assert got.shape == (2, 3, 8) and got.dtype == tf.float32
    np.testing.assert_array_equal(got[..., 3:], pool_regions(maps[1], boxes))


def test_gradients_flow_into_the_map():
    places = tf.Variable(tf.random.normal((1, 2, 2, 1)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(pool_regions(places, [[[0.0, 0.0, 0.75, 0.5], [0.0, 0.0, 0.0, 0.0]]]))
    # The box holds cell (0, 0) and half of (0, 1): weights 2/3 and 1/3.
    np.testing.assert_allclose(tape.gradient(loss, places)[0, :, :, 0], [[2 / 3, 1 / 3], [0, 0]], rtol=1e-6)


def test_crops_are_what_resizing_a_slice_gives():
    pixels = RANDOM.uniform(0, 255, (1, 48, 48, 3)).astype(np.float32)
    boxes = np.array([[WHOLE, [0, 0, 0, 0]]])
    shrunk = crop_regions(pixels, boxes, 16).numpy()
    expected = tf.image.resize(pixels, (16, 16), antialias=True).numpy()
    np.testing.assert_allclose(shrunk[:, 0], expected, rtol=1e-4)  # the same sums in another order
    assert not shrunk[:, 1].any()
    enlarged = crop_regions(pixels, boxes, 96).numpy()
    expected = tf.image.resize(pixels, (96, 96), antialias=True).numpy()
    np.testing.assert_allclose(enlarged[:, 0], expected, rtol=1e-4)


def test_crops_of_whole_pixels_are_those_pixels():
    pixels = RANDOM.uniform(0, 255, (2, 32, 40, 3)).astype(np.float32)
    box = np.array([10 / 40, 4 / 32, 8 / 40, 8 / 32], np.float32)
    got = crop_regions(pixels, np.broadcast_to(box, (2, 1, 4)), 8).numpy()
    np.testing.assert_allclose(got[:, 0], pixels[:, 4:12, 10:18], rtol=1e-4)


def test_no_pixel_is_left_out_when_shrinking():
    stripes = np.zeros((1, 64, 64, 3), np.float32)
    stripes[:, :, ::4] = 255
    crop = crop_regions(stripes, [[WHOLE]], 8).numpy()
    # Every crop pixel covers two periods, but for the two at the edges, whose filter is cut off.
    np.testing.assert_allclose(crop[0, 0, :, 1:-1], 255 / 4, rtol=1e-4)


def test_maps_are_what_the_network_pools():
    config = BackboneConfig("MobileNetV2", size=64)
    backbone = build_backbone(config)
    maps = feature_maps(backbone, config)
    pixels = RANDOM.uniform(0, 255, (2, 64, 64, 3)).astype(np.float32)
    assert [tuple(places.shape[1:]) for places in maps.outputs] == [(4, 4, 576), (2, 2, 320), (2, 2, 1280)]
    inner, before, last = (places.numpy() for places in maps(pixels))
    expected = np.concatenate([last.mean((1, 2)), last.max((1, 2)), inner.mean((1, 2)), before.mean((1, 2))], 1)
    np.testing.assert_allclose(backbone(pixels), expected, rtol=1e-4, atol=1e-5)
    small = BackboneConfig("SmallConvNet", size=32)
    assert len(feature_maps(build_backbone(small), small).outputs) == 1


def test_a_layer_has_no_map():
    config = BackboneConfig("VGG16", size=32, layer="fc7")
    with pytest.raises(InvalidArgumentError, match="layer='fc7'"):
        feature_maps(keras.Sequential([keras.Input((32, 32, 3))]), config)


def test_the_classifier_of_a_whole_network(tmp_path):
    config = BackboneConfig("MobileNetV2", size=64)
    keras.utils.set_random_seed(4)
    whole = keras.applications.MobileNetV2(weights=None, input_shape=(224, 224, 3))
    whole.save_weights(tmp_path / "whole.weights.h5")
    classifier = build_classifier(config, tmp_path / "whole.weights.h5")
    pixels = RANDOM.uniform(-1, 1, (2, 224, 224, 3)).astype(np.float32)
    pooled = keras.Model(whole.input, whole.layers[-2].output)(pixels)
    probabilities = tf.nn.softmax(classifier(pooled[:, None])[:, 0])
    np.testing.assert_allclose(probabilities, whole(pixels), rtol=1e-4)  # float32, another order
    save_classifier_weights(classifier, tmp_path / "classifier.weights.h5")
    again = build_classifier(config, tmp_path / "classifier.weights.h5")
    np.testing.assert_array_equal(again(pooled[:, None]), classifier(pooled[:, None]))


def test_networks_and_weights_without_a_classifier(tmp_path):
    path = tmp_path / "no-top.weights.h5"
    config = BackboneConfig("MobileNetV2", size=32)
    save_backbone_weights(build_backbone(config), path)
    with pytest.raises(DataError, match='rank="objectness"'):
        build_classifier(config, path)
    with pytest.raises(DataError, match="No weights file"):
        build_classifier(config, tmp_path / "none.weights.h5")
    for name in ("SmallConvNet", "MobileNetV3Small"):
        with pytest.raises(InvalidArgumentError, match='rank="objectness"'):
            build_classifier(BackboneConfig(name), path)
