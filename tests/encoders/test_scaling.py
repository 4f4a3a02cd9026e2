"""Feature scaling: statistics by hand, and through mixed precision."""

from __future__ import annotations

import keras
import numpy as np

from tests.contract import check_layer
from vsemb.encoders import FeatureScaling, ImageEncoder

FEATURES = np.random.default_rng(0).gamma(1.0, size=(20, 6)).astype(np.float32)


def test_contract(tmp_path) -> None:
    def make(dtype: str = "float32") -> FeatureScaling:
        layer = FeatureScaling(dtype=dtype)
        layer.adapt(FEATURES)
        return layer

    check_layer(make, [FEATURES[:3]], tmp_path)


def test_adapted_features_are_even() -> None:
    layer = FeatureScaling()
    layer.adapt(FEATURES)
    scaled = layer(FEATURES).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(0), 1, rtol=1e-4)


def test_by_hand() -> None:
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
    encoder.scaling.adapt(FEATURES)
    expected = encoder.affine(encoder.scaling(FEATURES))
    np.testing.assert_allclose(encoder(FEATURES), expected, rtol=1e-6)
