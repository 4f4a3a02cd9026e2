"""Image encoders: the affine map, and pixels through a backbone."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest

from tests.contract import check_layer
from vsemb.encoders import FeatureScaling, ImageEncoder, PixelEncoder

FEATURES = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
PIXELS = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 3)).astype(np.float32)


def backbone(dtype: str = "float32") -> keras.Model:
    pixels = keras.Input((8, 8, 3))
    x = keras.layers.Rescaling(1 / 255, dtype=dtype)(pixels)
    x = keras.layers.Conv2D(4, 3, dtype=dtype)(x)
    x = keras.layers.BatchNormalization(dtype=dtype)(x)
    return keras.Model(pixels, keras.layers.GlobalAveragePooling2D(dtype=dtype)(x))


@pytest.mark.parametrize(
    "arguments", [{}, {"use_bias": False, "dropout": 0.5, "init_scale": 0.08, "standardize": True}]
)
def test_contract(arguments, tmp_path) -> None:
    check_layer(functools.partial(ImageEncoder, 4, **arguments), [FEATURES], tmp_path)


def test_by_hand() -> None:
    encoder = ImageEncoder(2)
    encoder.build((None, 2))
    encoder.affine.set_weights([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])])
    # (1, 2) W + b = (1 + 6 + 10, 2 + 8 + 20).
    assert encoder(np.array([[1.0, 2.0]])).numpy().tolist() == [[17, 30]]


def test_init_scale_and_bias() -> None:
    encoder = ImageEncoder(50, use_bias=False, init_scale=0.08)
    encoder.build((None, 40))
    (kernel,) = encoder.get_weights()
    assert 0.07 < np.abs(kernel).max() <= 0.08


def test_dropout_acts_in_training_only() -> None:
    encoder = ImageEncoder(4, dropout=0.5)
    np.testing.assert_array_equal(encoder(FEATURES), encoder(FEATURES))
    assert (encoder(FEATURES, training=True).numpy() != encoder(FEATURES).numpy()).any()


@pytest.mark.parametrize("frozen_statistics", [True, False])
def test_pixel_contract(frozen_statistics: bool, tmp_path) -> None:
    def make(dtype: str = "float32") -> PixelEncoder:
        head = ImageEncoder(4, dtype=dtype)
        return PixelEncoder(backbone(dtype), head, frozen_statistics=frozen_statistics, dtype=dtype)

    check_layer(make, [PIXELS], tmp_path)


def test_pixels_are_not_rounded_to_the_precision_of_the_head() -> None:
    pixels = keras.Input((2, 2, 3))
    network = keras.Model(pixels, keras.layers.Flatten()(pixels))
    encoder = PixelEncoder(network, ImageEncoder(12, projection=False), dtype="mixed_bfloat16")
    odd = np.full((1, 2, 2, 3), 201.0, np.float32)  # bfloat16 has 200 and 202
    np.testing.assert_array_equal(encoder(odd), odd.reshape(1, 12))


def test_a_frozen_backbone_is_not_trained() -> None:
    encoder = PixelEncoder(backbone(), ImageEncoder(4), train_backbone=False)
    encoder(PIXELS)
    assert len(encoder.trainable_variables) == 2
    again = PixelEncoder.from_config(encoder.get_config())
    again(PIXELS)
    assert len(again.trainable_variables) == 2


def test_statistics_move_only_when_they_are_not_frozen() -> None:
    for frozen in (True, False):
        encoder = PixelEncoder(backbone(), ImageEncoder(4), frozen_statistics=frozen)
        encoder(PIXELS)
        before = [w.numpy() for w in encoder.backbone.non_trainable_variables]
        encoder(PIXELS, training=True)
        after = [w.numpy() for w in encoder.backbone.non_trainable_variables]
        moved = any((a != b).any() for a, b in zip(after, before, strict=True))
        assert moved is not frozen


POSITIVE_FEATURES = np.random.default_rng(0).gamma(1.0, size=(20, 6)).astype(np.float32)


def test_contract_of_scaling(tmp_path) -> None:
    def make(dtype: str = "float32") -> FeatureScaling:
        layer = FeatureScaling(dtype=dtype)
        layer.adapt(POSITIVE_FEATURES)
        return layer

    check_layer(make, [POSITIVE_FEATURES[:3]], tmp_path)


def test_adapted_features_are_even() -> None:
    layer = FeatureScaling()
    layer.adapt(POSITIVE_FEATURES)
    scaled = layer(POSITIVE_FEATURES).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-4)


def test_scaling_by_hand() -> None:
    # (3, -4) has length 5.
    np.testing.assert_allclose(FeatureScaling()(np.array([[3.0, -4.0]])), [[0.6, -0.8]], rtol=1e-5)


def test_statistics_keep_float32_in_mixed_precision() -> None:
    # A mean twenty deviations from zero: rounded to the 8 bits of bfloat16 it would be off by up to
    # 20 * 2**-9 = 0.04 deviations for all images alike.
    generator = np.random.default_rng(1)
    features = (1 + 0.05 * generator.normal(size=(500, 8))).astype(np.float32)
    layers = [FeatureScaling(dtype=dtype) for dtype in ("float32", "mixed_bfloat16")]
    for layer in layers:
        layer.adapt(features)
    full, mixed = (np.asarray(keras.ops.cast(layer(features), "float32")) for layer in layers)
    assert np.abs((mixed - full).mean(0)).max() < 0.005


def test_a_constant_feature_stays_small() -> None:
    features = np.ones((5, 3), np.float32)
    layer = FeatureScaling()
    layer.adapt(features)
    np.testing.assert_allclose(layer(features), 0, atol=1e-5)
    assert np.abs(layer(2 * features + np.eye(5, 3))).max() < 10


def test_image_encoder_scales_first() -> None:
    encoder = ImageEncoder(2, standardize=True)
    encoder.build((None, 6))
    encoder.scaling.adapt(POSITIVE_FEATURES)
    expected = encoder.affine(encoder.scaling(POSITIVE_FEATURES))
    np.testing.assert_allclose(encoder(POSITIVE_FEATURES), expected, rtol=1e-6)
