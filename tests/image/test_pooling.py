"""Poolings of maps by hand, and where things may move."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.pooling import PyramidPooling, pooled_map


def pooled(features: np.ndarray, *levels: int) -> np.ndarray:
    return keras.ops.convert_to_numpy(PyramidPooling(levels)(features.astype(np.float32)))


@pytest.mark.parametrize(("height", "width"), [(3, 3), (4, 4), (7, 5), (8, 8)])
def test_equals_loops(height, width):
    features = np.random.default_rng(0).normal(size=(2, height, width, 3))
    expected = []
    for level in (1, 2, 3):
        for row in range(level):
            for column in range(level):
                # A place belongs to the cells that any part of it lies in.
                rows = [y for y in range(height) if y * level < (row + 1) * height and (y + 1) * level > row * height]
                columns = [
                    x for x in range(width) if x * level < (column + 1) * width and (x + 1) * level > column * width
                ]
                expected.append(features[:, rows][:, :, columns].max(axis=(1, 2)))
    np.testing.assert_allclose(pooled(features, 1, 2, 3), np.concatenate(expected, axis=1), rtol=1e-6)


@pytest.mark.parametrize(("side", "starts", "region"), [(9, (0, 2, 4), 5), (7, (0, 2), 5), (4, (0,), 4)])
def test_regional_pooling_is_the_mean_of_the_maxima_of_regions(side, starts, region):
    features = np.random.default_rng(0).normal(size=(2, side, side, 3)).astype(np.float32)
    given = keras.Input((side, side, 3))
    model = keras.Model(given, pooled_map(given, "regional", [given]))
    squares = [features[:, y : y + region, x : x + region] for y in starts for x in starts]
    maxima = np.mean([square.max(axis=(1, 2)) for square in squares], axis=0)
    means = features.mean(axis=(1, 2))
    np.testing.assert_allclose(model(features), np.concatenate([means, maxima, means], axis=1), rtol=1e-5, atol=1e-6)


def test_the_whole_stays_where_a_thing_moves_and_the_cells_tell_where():
    here, there = np.zeros((1, 6, 6, 2)), np.zeros((1, 6, 6, 2))
    here[0, 0, 0], there[0, 5, 3] = 1, 1
    first, second = pooled(here, 1, 3).reshape(10, 2), pooled(there, 1, 3).reshape(10, 2)
    assert first[0].tolist() == second[0].tolist() == [1, 1]
    assert np.flatnonzero(first[1:, 0]).tolist() == [0]
    assert np.flatnonzero(second[1:, 0]).tolist() == [7]


def test_of_a_backbone_and_back_from_its_configuration():
    backbone = build_backbone(BackboneConfig("SmallConvNet", pooling="pyramid"))
    assert backbone.output_shape == (None, 10 * 128)
    layer = PyramidPooling((2,))
    assert PyramidPooling.from_config(layer.get_config()).levels == (2,)


def test_refusals():
    with raises_argument("levels"):
        PyramidPooling(())
    with raises_argument("levels"):
        PyramidPooling((0,))
    with raises_argument("features"):
        pooled(np.zeros((1, 2, 2, 1)), 3)
    with raises_argument("pooling"):
        build_backbone(BackboneConfig("MobileNetV2", size=64, pooling="pyramid"))
