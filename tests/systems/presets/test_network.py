"""Image networks of presets: features equal to keras-hub's, poolings, weights."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.data.features.store import feature_fingerprint
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig, build_backbone, save_backbone_weights, weights_sha256
from vsemb.image.pooling import pooled_map

PRESET_PIXELS = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.float32)
#: The same operations in the same order but for constant folding.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("kind", ["vit", "resnet", "efficientnet", "clip", "siglip"])
def test_features_are_those_of_keras_hub(kind: str, preset_path, tmp_path) -> None:
    import keras_hub

    path = preset_path(kind)
    config = BackboneConfig(f"hub:{path}")
    backbone = build_backbone(config, "preset")
    network = keras_hub.models.Backbone.from_preset(str(path))
    converted = keras_hub.layers.ImageConverter.from_preset(str(path))(PRESET_PIXELS)
    if kind in ("clip", "siglip"):
        theirs = network.get_vision_embeddings(converted)
    else:
        theirs = network(converted)
        theirs = theirs[:, 0] if kind == "vit" else keras.ops.mean(theirs, axis=(1, 2))
    features = keras.ops.convert_to_numpy(backbone(PRESET_PIXELS))
    np.testing.assert_allclose(features, keras.ops.convert_to_numpy(theirs), **CLOSE)
    assert features.std(axis=0).max() > 1e-3, "the features do not depend on the image"
    # Without the preset, from what a feature cache holds.
    save_backbone_weights(backbone, tmp_path / "kept.weights.h5")
    kept = BackboneConfig.from_json({**config.to_json(), "name": "hub:gone"})
    again = build_backbone(kept, tmp_path / "kept.weights.h5")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(PRESET_PIXELS)), features)
    assert weights_sha256(again) == weights_sha256(backbone)


@pytest.mark.parametrize("kind", ["vit", "clip"])
def test_random_weights_follow_from_the_seed(kind: str, preset_path) -> None:
    config = BackboneConfig(f"hub:{preset_path(kind)}")
    first, second, other = (weights_sha256(build_backbone(config, None, seed)) for seed in (1, 1, 2))
    assert first == second != other


def test_fingerprints_know_the_network_and_not_its_place(preset_path) -> None:
    config = BackboneConfig(f"hub:{preset_path('vit')}")
    moved = BackboneConfig.from_json({**config.to_json(), "name": "hub:elsewhere"})
    other = BackboneConfig(f"hub:{preset_path('vit')}", pooling="mean")
    assert feature_fingerprint(config, "w") == feature_fingerprint(moved, "w") != feature_fingerprint(other, "w")


def test_poolings_of_patches(preset_path) -> None:
    vectors = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)
    wanted = {
        "token": vectors[:, 0],
        "mean": vectors[:, 1:].mean(axis=1),
        "max": vectors[:, 1:].max(axis=1),
        "mean+max": np.concatenate([vectors[:, 1:].mean(axis=1), vectors[:, 1:].max(axis=1)], axis=1),
        "flat": vectors[:, 1:].reshape(2, -1),
    }
    for pooling, expected in wanted.items():
        config = BackboneConfig(f"hub:{preset_path('vit')}", pooling=pooling)
        assert config.network is not None
        pooled = config.network.pooled(
            keras.ops.convert_to_tensor(vectors),
            pooling,
            lambda features: pooled_map(features, pooling, []),  # noqa: B023
        )
        np.testing.assert_allclose(keras.ops.convert_to_numpy(pooled), expected, rtol=1e-6)
    for pooling, size in (("mean", 16), ("mean+max", 32), ("flat", 256)):
        config = BackboneConfig(f"hub:{preset_path('vit')}", pooling=pooling)
        assert build_backbone(config).output_shape == (None, size)


@pytest.mark.parametrize("pooling", ["mean+max", "regional"])
def test_a_map_takes_other_sizes_and_patches_do_not(pooling, preset_path) -> None:
    config = BackboneConfig(f"hub:{preset_path('resnet')}", size=64, pooling=pooling)
    assert build_backbone(config).output_shape == (None, 128)
    with raises_argument("size"):
        BackboneConfig(f"hub:{preset_path('vit')}", size=64)


def test_what_does_not_go_together(preset_path) -> None:
    with raises_argument("pooling"):
        BackboneConfig(f"hub:{preset_path('clip')}", pooling="mean")
    with raises_argument("weights"):
        build_backbone(BackboneConfig(f"hub:{preset_path('vit')}"), "imagenet")


def test_weights_of_another_network_are_refused(preset_path) -> None:
    weights = preset_path("resnet") / "model.weights.h5"
    with pytest.raises(DataError, match="hub:"):
        build_backbone(BackboneConfig(f"hub:{preset_path('vit')}"), weights)
