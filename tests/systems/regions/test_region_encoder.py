"""Regions: equation 1 by hand, padding, statistics of the real rows, the contract."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer
from vsemb.encoders import ImageEncoder
from vsemb.systems.regions.region_encoder import RegionEncoder

FEATURES = np.random.default_rng(0).gamma(1.0, size=(3, 4, 6)).astype(np.float32)
FEATURES[0, 2:] = FEATURES[2, 1:] = 0
REAL = FEATURES.any(-1)
#: Everything that could make something of a row of zeros.
OPTIONS = {"dropout": 0.5, "standardize": True, "init_scale": 0.3}


def make_encoder(dtype: str = "float32", **options) -> RegionEncoder:
    """An encoder with a bias that is not zero and, where it scales, statistics of the real rows."""
    encoder = RegionEncoder(5, **options, dtype=dtype)
    encoder.build((None, None, 6))
    if encoder.use_bias:
        encoder.affine.bias.assign([3.0, -1.0, 2.0, 0.5, -4.0])
    if encoder.scaling is not None:
        encoder.scaling.adapt(FEATURES[REAL])
    return encoder


@pytest.mark.parametrize("options", [{}, OPTIONS, {"use_bias": False}], ids=["plain", "options", "no bias"])
def test_contract(options, tmp_path) -> None:
    result = check_layer(functools.partial(make_encoder, **options), [FEATURES], tmp_path, sequence=True)
    assert result.shape == (3, 4, 5)


def test_equation_1_by_hand() -> None:
    encoder = RegionEncoder(2)
    encoder.build((None, None, 2))
    encoder.affine.set_weights([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])])
    # (1, 2) W + b = (1 + 6 + 10, 2 + 8 + 20), (0, -1) W + b = (-3 + 10, -4 + 20), and no region.
    features = np.array([[[1.0, 2.0], [0.0, 0.0], [0.0, -1.0]]])
    assert encoder(features).numpy().tolist() == [[[17, 30], [0, 0], [7, 16]]]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_padding_is_zeros_and_nothing_else_is(dtype: str, training: bool) -> None:
    result = np.asarray(tf.cast(make_encoder(dtype, **OPTIONS)(FEATURES, training=training), tf.float32))
    np.testing.assert_array_equal(result.any(-1), REAL)


def test_padding_gets_no_gradient() -> None:
    encoder, features = make_encoder(**OPTIONS), tf.constant(FEATURES)
    with tf.GradientTape() as tape:
        tape.watch(features)
        total = tf.reduce_sum(encoder(features) ** 2)
    gradient, bias = tape.gradient(total, [features, encoder.affine.bias.value])
    np.testing.assert_array_equal(np.asarray(gradient).any(-1), REAL)
    expected = 2 * encoder(FEATURES).numpy().sum((0, 1))
    np.testing.assert_allclose(bias, expected, rtol=1e-4)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_region_is_encoded_as_an_image_is(standardize: bool) -> None:
    regions = make_encoder(standardize=standardize)
    image = ImageEncoder(5, standardize=standardize)
    image.build((None, 6))
    image.set_weights(regions.get_weights())
    np.testing.assert_allclose(regions(FEATURES).numpy()[REAL], image(FEATURES[REAL]), **SAME)


def test_dropout_acts_in_training_only() -> None:
    encoder = make_encoder(dropout=0.5)
    np.testing.assert_array_equal(encoder(FEATURES), encoder(FEATURES))
    assert (encoder(FEATURES, training=True).numpy() != encoder(FEATURES).numpy()).any()


def test_any_number_of_images_and_regions() -> None:
    encoder = make_encoder(standardize=True)
    assert encoder(np.zeros((0, 4, 6), np.float32)).shape == (0, 4, 5)
    assert encoder(np.zeros((2, 0, 6), np.float32)).shape == (2, 0, 5)
    compiled = tf.function(encoder, input_signature=[tf.TensorSpec([None, None, 6])])
    for shape in ((1, 7, 6), (5, 1, 6)):
        features = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(compiled(features), encoder(features), **SAME)
