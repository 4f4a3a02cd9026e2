"""Image networks of presets: features equal to keras-hub's, poolings, weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import recipes
from vsemb.data.features.store import feature_fingerprint
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig, build_backbone, build_top, save_backbone_weights, weights_sha256
from vsemb.runs.train import train

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
        pooled = config.network.pooled(keras.ops.convert_to_tensor(vectors), pooling)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(pooled), expected, rtol=1e-6)
    for pooling, size in (("mean", 16), ("mean+max", 32), ("flat", 256)):
        config = BackboneConfig(f"hub:{preset_path('vit')}", pooling=pooling)
        assert build_backbone(config).output_shape == (None, size)


def test_a_map_takes_other_sizes_and_patches_do_not(preset_path) -> None:
    config = BackboneConfig(f"hub:{preset_path('resnet')}", size=64, pooling="mean+max")
    assert build_backbone(config).output_shape == (None, 128)
    with raises_argument("size"):
        BackboneConfig(f"hub:{preset_path('vit')}", size=64)


def pyramid_means(path: Path) -> np.ndarray:
    """Means of the maps of keras-hub's pyramid that are twice as large as the last one."""
    import keras_hub

    network = keras_hub.models.Backbone.from_preset(str(path))
    below = sorted(network.pyramid_outputs)[-2]
    converted = keras_hub.layers.ImageConverter.from_preset(str(path))(PRESET_PIXELS)
    maps = keras.Model(network.inputs, network.pyramid_outputs[below])(converted)
    return keras.ops.convert_to_numpy(maps).mean((1, 2))


@pytest.mark.parametrize("kind", ["resnet", "efficientnet"])
def test_inner_maps_are_those_of_the_pyramid(kind: str, preset_path, tmp_path) -> None:
    name = f"hub:{preset_path(kind)}"
    whole = build_backbone(BackboneConfig(name, pooling="mean+max"), "preset")
    for pooling in ("multilevel", "regional"):
        config = BackboneConfig(name, pooling=pooling)
        assert len(config.inner_maps) == 1 and config.levels == config.inner_maps
        backbone = build_backbone(config, "preset")
        features = keras.ops.convert_to_numpy(backbone(PRESET_PIXELS))
        means = pyramid_means(preset_path(kind))
        np.testing.assert_allclose(features[:, -means.shape[1] :], means, **CLOSE)
        assert weights_sha256(backbone) == weights_sha256(whole)
        # The file has the whole network, and opens without the preset.
        save_backbone_weights(backbone, tmp_path / f"{pooling}.weights.h5")
        kept = BackboneConfig.from_json({**config.to_json(), "name": "hub:gone"})
        again = build_backbone(kept, tmp_path / f"{pooling}.weights.h5")
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(PRESET_PIXELS)), features)
    assert not BackboneConfig(name).levels
    assert BackboneConfig(f"hub:{preset_path('vit')}").inner_maps == ()


@pytest.mark.parametrize("kind", ["resnet", "efficientnet"])
def test_layers_above_an_inner_map_are_the_rest_of_the_network(kind: str, preset_path, tmp_path) -> None:
    name, file = f"hub:{preset_path(kind)}", tmp_path / "whole.weights.h5"
    whole = build_backbone(BackboneConfig(name, pooling="multilevel", size=64), "preset")
    save_backbone_weights(whole, file)
    config = BackboneConfig(name, size=64, layer=BackboneConfig(name).inner_maps[0])
    pixels = np.random.default_rng(2).uniform(0, 255, (2, 64, 64, 3)).astype(np.float32)
    maps = build_backbone(config, "preset")(pixels)
    features = build_top(config, file, "multilevel")(maps)
    wanted = keras.ops.convert_to_numpy(whole(pixels))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(features), wanted, rtol=1e-4, atol=1e-5)


def test_networks_are_built_only_where_inner_maps_are_used(preset_path, monkeypatch) -> None:
    name = f"hub:{preset_path('resnet')}"
    level = BackboneConfig(name).inner_maps[0]

    def build(*_: object, **__: object) -> None:
        raise AssertionError("a network was built")

    # A description can name a network that fills the memory.
    monkeypatch.setattr("vsemb.systems.presets.network.build_network", build)
    plain = BackboneConfig(name)
    assert level not in str(plain.identity()) and plain.fitting("mean") == "mean" and not plain.levels
    assert BackboneConfig.from_json(plain.to_json()) == plain
    for options in ({"pooling": "multilevel"}, {"layer": level}):
        with pytest.raises(AssertionError):
            BackboneConfig(name, **options)
    monkeypatch.undo()
    # Features that have a level are others.
    assert level in str(BackboneConfig(name, pooling="regional").identity())


@pytest.mark.slow
def test_best_trains_the_layers_above_the_inner_map(preset_path, scenes_copy, tmp_path) -> None:
    preset = shutil.copytree(preset_path("efficientnet"), tmp_path / "preset")
    shutil.rmtree(scenes_copy.path / "features")
    recipe = tiny(recipes.get("best"), "image.size=32", "image.networks=2")
    run = train(recipe, scenes_copy, tmp_path / "run", backbone=f"hub:{preset}")
    assert run.recipe.image.layer == BackboneConfig(f"hub:{preset}").inner_maps[0]
    start = build_backbone(BackboneConfig(f"hub:{preset}"), "preset")
    kernel = next(weight for weight in start.weights if "top_conv" in weight.path)
    moved = [weight for weight in run.model.image_encoder.trainable_weights if "top_conv" in weight.path]
    assert len(moved) == 2
    assert all(0 < np.abs(weight.numpy() - kernel.numpy()).max() < 0.05 for weight in moved)
    # Bytes are embedded without the preset, as cached maps are.
    shutil.rmtree(preset)
    split = scenes_copy.split("val")
    pixels = vsemb.load(run.path).encode_images(split.read_images(np.arange(3)))
    images = run.recipe.image.images(split, run.recipe.image.open(scenes_copy))
    maps = images.finish(images.gather(np.arange(3)), None)
    np.testing.assert_allclose(run.model.encode_images(maps), pixels, rtol=1e-2, atol=1e-3)


def test_what_does_not_go_together(preset_path) -> None:
    with raises_argument("pooling"):
        BackboneConfig(f"hub:{preset_path('clip')}", pooling="mean")
    with raises_argument("layer"):
        BackboneConfig(f"hub:{preset_path('clip')}", layer="gone")
    with raises_argument("weights"):
        build_backbone(BackboneConfig(f"hub:{preset_path('vit')}"), "imagenet")


def test_weights_of_another_network_are_refused(preset_path) -> None:
    weights = preset_path("resnet") / "model.weights.h5"
    with pytest.raises(DataError, match="hub:"):
        build_backbone(BackboneConfig(f"hub:{preset_path('vit')}"), weights)
