"""Backbones: configuration, scaling, weights, and features that are the same wherever they come from."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.image import backbones
from vsemb.image.backbones import (
    ARCHITECTURES,
    BackboneConfig,
    PixelScaling,
    build_backbone,
    build_top,
    save_backbone_weights,
    small_conv_net,
    weights_sha256,
)
from vsemb.image.presets import Network

SMALL = BackboneConfig("SmallConvNet", size=32)
MOBILE = BackboneConfig("MobileNetV2", size=32)


def pixels(size: int = 32, batch: int = 2) -> np.ndarray:
    return np.random.default_rng(5).uniform(0, 255, (batch, size, size, 3)).astype(np.float32)


# The module of keras.applications that documents each network's own preprocessing.
PREPROCESSING = {
    "MobileNetV2": "mobilenet_v2",
    "MobileNetV3Small": "mobilenet_v3",
    "MobileNetV3Large": "mobilenet_v3",
    "EfficientNetB0": "efficientnet",
    "EfficientNetV2B0": "efficientnet_v2",
    "EfficientNetV2S": "efficientnet_v2",
    "ResNet50": "resnet",
    "ResNet101": "resnet",
    "ResNet152": "resnet",
    "ResNet50V2": "resnet_v2",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
    "InceptionV3": "inception_v3",
    "Xception": "xception",
    "DenseNet121": "densenet",
    "ConvNeXtTiny": "convnext",
}


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"SmallConvNet"}))
def test_scaling_is_that_of_keras_applications(name):
    given = pixels(4)
    module = getattr(keras.applications, PREPROCESSING[name])
    mode = ARCHITECTURES[name].mode
    scaled = given if mode == "none" else keras.ops.convert_to_numpy(PixelScaling(mode)(given))
    np.testing.assert_allclose(scaled, module.preprocess_input(given.copy()), rtol=1e-6, atol=1e-5)
    assert hasattr(keras.applications, name)


def test_scaling_stays_float32_under_mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        layer = PixelScaling("tf")
        assert keras.backend.standardize_dtype(layer(pixels()).dtype) == "float32"
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert PixelScaling.from_config(layer.get_config()).mode == "tf"
    with raises_argument("mode"):
        PixelScaling("toch")


def test_configuration_round_trip_and_defaults():
    config = BackboneConfig("EfficientNetV2S", crops=10)
    assert (config.size, config.pooling, config.layer) == (384, "mean", None)
    assert BackboneConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert BackboneConfig("SmallConvNet").pooling == "mean+max"
    # The default is absent, so that older features keep their fingerprints.
    assert "resize" not in config.to_json()
    cropped = BackboneConfig("SmallConvNet", resize="short-side")
    assert cropped.identity()["resize"] == "short-side" and BackboneConfig.from_json(cropped.to_json()) == cropped


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"name": "MobilNetV2"}, "backbone"),
        ({"name": "MobileNetV2", "size": 31}, "size"),
        ({"name": "MobileNetV2", "size": True}, "size"),
        ({"name": "MobileNetV2", "pooling": "men"}, "pooling"),
        ({"name": "MobileNetV2", "layer": "fc7"}, "layer"),
        ({"name": "VGG16", "layer": "fc8"}, "layer"),
        ({"name": "MobileNetV2", "crops": 5}, "crops"),
        ({"name": "MobileNetV2", "resize": "short"}, "resize"),
        ({"name": "MobileNetV2", "poling": "mean"}, "backbone field"),
        ({"size": 64}, "backbone"),
    ],
)
def test_bad_configurations(options, argument):
    with raises_argument(argument):
        BackboneConfig.from_json(options)


def check_pooling(backbone: keras.Model, config: BackboneConfig, dim: int) -> None:
    base = next(layer for layer in backbone.layers if isinstance(layer, keras.Model))
    places = base(pixels(64) / 127.5 - 1.0).numpy()
    assert places.shape[1:3] in ((2, 2), (4, 4))
    parts = {"mean": places.mean((1, 2)), "max": places.max((1, 2)), "flat": places.reshape(2, -1)}
    expected = np.concatenate([parts[name] for name in config.pooling.split("+")], axis=-1)
    assert backbone.output_shape == (None, dim)
    np.testing.assert_allclose(backbone(pixels(64)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("pooling", "dim"), [("mean", 128), ("max", 128), ("flat", 2048)])
def test_pooling(pooling, dim):
    config = BackboneConfig("SmallConvNet", size=64, pooling=pooling)
    check_pooling(build_backbone(config), config, dim)


@pytest.mark.slow
def test_multilevel_pooling_adds_inner_layers_and_is_saved(tmp_path):
    config = BackboneConfig("MobileNetV2", size=64)
    assert config.pooling == "multilevel"
    backbone = build_backbone(config)
    # Mean and max of the last map (1280 each), means of two inner maps (576 and 320).
    assert backbone.output_shape == (None, 2 * 1280 + 576 + 320)
    mean_and_max = BackboneConfig("MobileNetV2", size=64, pooling="mean+max")
    save_backbone_weights(backbone, tmp_path / "b.weights.h5")
    plain = build_backbone(mean_and_max, tmp_path / "b.weights.h5", seed=5)
    check_pooling(plain, mean_and_max, 2560)
    np.testing.assert_array_equal(backbone(pixels(64))[:, :2560], plain(pixels(64)))
    assert weights_sha256(backbone) == weights_sha256(plain)
    with raises_argument("pooling"):
        BackboneConfig("VGG16", pooling="multilevel")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer", "pooling", "dim"),
    [
        ("SmallConvNet", "block2_relu", "mean+max", 2 * 128 + 96),
        ("SmallConvNet", "block2_relu", "regional", 2 * 128 + 96),
        # Mean and max of the last map, and the means of this map and of the level above it.
        ("MobileNetV2", "block_13_project_BN", "multilevel", 2 * 1280 + 160 + 320),
    ],
)
def test_the_layers_above_an_inner_map_are_the_rest_of_the_network(name, layer, pooling, dim, tmp_path):
    whole = build_backbone(BackboneConfig(name, size=64, pooling=pooling), seed=3)
    file = tmp_path / "b.weights.h5"
    save_backbone_weights(whole, file)
    config = BackboneConfig(name, size=64, layer=layer)
    assert config.pooling == "flat"
    below, top = build_backbone(config, file), build_top(config, file, pooling)
    maps, wanted = below(pixels(64)).numpy(), whole(pixels(64)).numpy()
    features = top(maps).numpy()
    assert features.shape == (2, dim)
    last = 2 * (128 if name == "SmallConvNet" else 1280)
    np.testing.assert_allclose(features[:, :last], wanted[:, :last], rtol=1e-4, atol=1e-5)
    channels = 96 if name == "SmallConvNet" else 160
    means = maps.reshape(2, -1, channels).mean(1)
    np.testing.assert_allclose(features[:, last : last + channels], means, rtol=1e-4, atol=1e-5)
    if name == "MobileNetV2":
        np.testing.assert_allclose(features[:, -320:], wanted[:, -320:], rtol=1e-4, atol=1e-5)
    # The network below keeps the weights of the layers above.
    assert weights_sha256(below) == weights_sha256(whole)


def test_a_top_needs_a_map():
    with raises_argument("config"):
        build_top(SMALL)


def test_fully_connected_layer_of_vgg():
    backbone = build_backbone(BackboneConfig("VGG16", size=32, layer="fc6"))
    assert backbone.output_shape == (None, 4096)
    assert (backbone(pixels()).numpy() >= 0).all()  # after ReLU


def test_a_size_that_the_network_refuses():
    with raises_argument("size"):
        build_backbone(BackboneConfig("InceptionV3", size=32))


def test_random_weights_are_decided_by_the_seed():
    first, again, other = (build_backbone(SMALL, seed=seed) for seed in (1, 1, 2))
    assert weights_sha256(first) == weights_sha256(again) != weights_sha256(other)
    assert weights_sha256(build_backbone(SMALL, "random")) == weights_sha256(build_backbone(SMALL))


def test_saved_weights_give_the_same_network(tmp_path):
    backbone = build_backbone(SMALL, seed=3)
    save_backbone_weights(backbone, tmp_path / "w.weights.h5")
    again = build_backbone(SMALL, tmp_path / "w.weights.h5")
    assert weights_sha256(again) == weights_sha256(backbone)
    np.testing.assert_array_equal(again(pixels()), backbone(pixels()))


def test_the_model_itself_can_be_saved(tmp_path):
    backbone = build_backbone(SMALL)
    backbone.save(tmp_path / "b.keras")
    again = keras.models.load_model(tmp_path / "b.keras")
    np.testing.assert_array_equal(again(pixels()), backbone(pixels()))


@pytest.mark.slow
def test_a_file_with_the_classifier_is_accepted(tmp_path):
    # The form of the files that Keras distributes.
    from keras.src.legacy.saving import legacy_h5_format

    h5py = pytest.importorskip("h5py")
    keras.utils.set_random_seed(4)
    whole = keras.applications.MobileNetV2(weights=None, input_shape=(224, 224, 3))
    whole.save_weights(tmp_path / "whole.weights.h5")
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, whole)
    for ending in (".weights.h5", ".h5"):
        backbone = build_backbone(MOBILE, tmp_path / f"whole{ending}")
        layer = next(layer for layer in backbone.layers if isinstance(layer, keras.Model)).get_layer("Conv_1")
        np.testing.assert_array_equal(layer.kernel, whole.get_layer("Conv_1").kernel)


@pytest.mark.parametrize("name", ["none.weights.h5", "w.npz", "w.weights.h5"])
def test_bad_weight_files_are_named(name, tmp_path):
    if name == "w.weights.h5":
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)]).save_weights(tmp_path / name)
    elif name == "w.npz":
        (tmp_path / name).write_bytes(b"?")
    with pytest.raises(DataError, match=name):
        build_backbone(SMALL, tmp_path / name)


def test_a_broken_weight_file(tmp_path):
    (tmp_path / "w.weights.h5").write_bytes(b"not HDF5")
    with pytest.raises(DataError):
        build_backbone(SMALL, tmp_path / "w.weights.h5")


def test_a_download_that_fails(monkeypatch):
    def refuse(*args, **kwargs):
        raise Exception("URL fetch failure on https://example.org:\n timed out")

    monkeypatch.setattr(keras.applications, "MobileNetV2", refuse)
    with pytest.raises(DataError, match="`weights`"):
        build_backbone(MOBILE, "imagenet")
    with raises_argument("weights"):
        build_backbone(SMALL, "imagenet")


def test_architectures_are_documented_by_keras_or_here():
    assert backbones.ARCHITECTURES.keys() - {"SmallConvNet"} == PREPROCESSING.keys()


def test_shapes_of_the_small_network():
    assert small_conv_net((64, 64, 3)).output_shape == (None, 4, 4, 128)
    assert build_backbone(BackboneConfig("SmallConvNet")).output_shape == (None, 256)
    assert build_backbone(BackboneConfig("SmallConvNet", pooling="mean")).output_shape == (None, 128)


@pytest.mark.slow
def test_it_learns_shape_and_colour():
    # Four classes: a red or blue, filled square or hollow frame somewhere in a grey picture.
    random = np.random.default_rng(0)
    pixels = np.full((256, 32, 32, 3), 200, np.float32)
    labels = np.arange(256) % 4
    for picture, label in zip(pixels, labels, strict=True):
        y, x = random.integers(0, 16, 2)
        picture[y : y + 16, x : x + 16] = [220, 30, 30] if label % 2 else [30, 30, 220]
        if label >= 2:
            picture[y + 4 : y + 12, x + 4 : x + 12] = 200
    keras.utils.set_random_seed(0)
    backbone = build_backbone(SMALL, seed=1)
    model = keras.Sequential([backbone, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    model.fit(pixels[:192], labels[:192], batch_size=32, epochs=12, verbose=0)
    _, accuracy = model.evaluate(pixels[192:], labels[192:], verbose=0)
    assert accuracy > 0.9


def test_what_is_of_presets_alone() -> None:
    # Caches made before there were presets keep their names.
    assert "preset" not in BackboneConfig("MobileNetV2").to_json()
    with raises_argument("pooling"):
        BackboneConfig("MobileNetV2", pooling="token")
    with raises_argument("weights"):
        build_backbone(BackboneConfig("SmallConvNet"), "preset")


class Embedder(Network):
    """A network of another kind: an embedding per image, and no map."""

    @property
    def poolings(self) -> tuple[str, ...]:
        return ("embedding",)

    def build(self, config: BackboneConfig, weights: str | None = None) -> keras.Model:
        flat = keras.layers.Flatten()
        return keras.Sequential([keras.Input((config.size, config.size, 3)), flat, keras.layers.Dense(3, name="last")])

    def scaled(self, pixels):
        return keras.layers.Rescaling(1 / 255)(pixels)


def test_a_network_of_another_kind(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(ARCHITECTURES, "Embedder", Embedder(40))
    config = BackboneConfig("Embedder")
    assert (config.size, config.pooling, config.inner_maps) == (40, "embedding", ())
    assert BackboneConfig.from_json(config.to_json()) == config
    backbone = build_backbone(config, seed=3)
    save_backbone_weights(backbone, tmp_path / "b.weights.h5")
    again = build_backbone(config, tmp_path / "b.weights.h5")
    kernel = next(weight for weight in again.weights if "last" in weight.path)
    expected = pixels(40).reshape(2, -1) / 255 @ kernel.numpy()
    np.testing.assert_allclose(again(pixels(40)), expected, rtol=1e-4, atol=1e-5)
    for options in ({"pooling": "mean"}, {"layer": "last"}):
        with raises_argument(*options):
            BackboneConfig("Embedder", **options)
    with raises_argument("weights"):
        build_backbone(config, "imagenet")
    with pytest.raises(DataError):
        build_backbone(config, tmp_path / "none.weights.h5")
