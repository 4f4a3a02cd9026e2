"""Image converters of presets: each field is honoured as keras-hub does, or refused by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.presets.texts import photographs
from vsemb.errors import DataError
from vsemb.exporting.served_inputs import ImageInput
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.resizing import Resizing
from vsemb.image.views import decode_views
from vsemb.recipes.towers import Pixels
from vsemb.systems.presets.converter import Converter
from vsemb.systems.presets.network import ImagePreset


@pytest.fixture
def preset_with(preset_path, tmp_path: Path) -> Callable[..., Path]:
    """Copies a preset with other fields of its converter; `absent` ones are left out."""

    def path(kind: str, absent: tuple[str, ...] = (), **fields: Any) -> Path:
        copy = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(preset_path(kind), copy)
        file = copy / "image_converter.json"
        content = json.loads(file.read_text())
        content["config"] |= fields
        for name in absent:
            del content["config"][name]
        file.write_text(json.dumps(content))
        return copy

    return path


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("clip", {}),
        ("resnet", {"crop_to_aspect_ratio": False, "pad_to_aspect_ratio": True, "interpolation": "area"}),
    ],
)
def test_embeddings_of_photographs_are_those_of_keras_hub(kind: str, fields: dict, preset_with) -> None:
    """The oracle: keras-hub's converter and network on the decoded pixels of each image."""
    import keras_hub

    path = preset_with(kind, **fields)
    network = keras_hub.models.Backbone.from_preset(str(path))
    converter = keras_hub.layers.ImageConverter.from_preset(str(path))
    images, rows = photographs()
    if converter.pad_to_aspect_ratio:
        # keras-hub cannot pad whole numbers.
        images = [image.astype(np.float32) for image in images]
    converted = np.concatenate([np.asarray(converter(image[None])) for image in images])
    theirs = network.get_vision_embeddings(converted) if kind == "clip" else network(converted)
    if kind == "resnet":
        theirs = keras.ops.mean(theirs, axis=(1, 2))
    config = BackboneConfig(f"hub:{path}")
    backbone = build_backbone(config, "preset")
    embedded, valid = ImageInput(config, backbone)(tf.constant(rows))
    assert valid.numpy().all()
    assert _least_cosine(embedded, theirs) >= 0.9995
    squashed = BackboneConfig(f"hub:{path}", resize="squash")
    others, _ = ImageInput(squashed, backbone)(tf.constant(rows))
    assert _least_cosine(others, theirs) < 0.9995, "the images are equal with any resizing"


def _least_cosine(first: Any, second: Any) -> float:
    first, second = (keras.utils.normalize(np.asarray(rows), axis=1) for rows in (first, second))
    return float((first * second).sum(axis=1).min())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interpolation", "gaussian"),
        ("antialias", "false"),
        ("crop_to_aspect_ratio", 1),
        ("data_format", "channels_first"),
        ("scale", "1/255"),
        ("scale", [0.1, 0.2]),
        ("offset", [0.1, 0.2, float("nan")]),
        ("image_size", [64, 64]),
        ("image_size", [32, 48]),
        ("image_size", ["32", "32"]),
        ("patch_size", 16),
        ("fill_value", 3.0),
    ],
)
def test_a_value_that_the_graph_cannot_honour_is_refused_by_name(name: str, value: Any, preset_with) -> None:
    with pytest.raises(DataError, match=f"`{name}`"):
        ImagePreset.open(f"hub:{preset_with('vit', **{name: value})}")


def test_crop_and_padding_exclude_each_other(preset_with) -> None:
    with pytest.raises(DataError, match="pad_to_aspect_ratio"):
        ImagePreset.open(f"hub:{preset_with('vit', crop_to_aspect_ratio=True, pad_to_aspect_ratio=True)}")


def test_a_converter_with_its_own_code_is_refused(preset_path, tmp_path: Path) -> None:
    """The class cuts images of any shape to patches."""
    import keras_hub

    path = shutil.copytree(preset_path("vit"), tmp_path / "preset")
    keras_hub.layers.Qwen3_5ImageConverter().save_to_preset(str(path))
    content = json.loads((path / "image_converter.json").read_text())
    own = ("patch_size", "temporal_patch_size", "spatial_merge_size", "min_pixels", "max_pixels")
    content["config"] = {key: value for key, value in content["config"].items() if key not in own}
    (path / "image_converter.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="`class_name`"):
        ImagePreset.open(f"hub:{path}")


def test_fields_without_effect_and_older_names_are_taken(preset_with) -> None:
    older = {"height": 32, "width": 32, "scale": 1 / 255, "mean": [0.5, 0.4, 0.3], "variance": [0.25, 0.25, 0.25]}
    path = preset_with(
        "vit", ("image_size", "offset"), bounding_box_format="xywh", data_format="channels_last", **older
    )
    converter = Converter.read(path)
    assert converter is not None and converter.image_size == (32, 32)
    np.testing.assert_allclose(converter.scale, [2 / 255] * 3)
    np.testing.assert_allclose(converter.offset, [-1.0, -0.8, -0.6])


def test_without_an_image_size_the_network_has_it(preset_with) -> None:
    preset = ImagePreset.open(f"hub:{preset_with('vit', image_size=None, interpolation='bicubic')}")
    assert preset.size == 32 and preset.resizing == Resizing("bicubic", crop_to_aspect_ratio=True)._asdict()


def test_another_resizing_can_be_asked_for_and_is_kept(preset_path) -> None:
    name = f"hub:{preset_path('clip')}"
    own, squashed = BackboneConfig(name), BackboneConfig(name, resize="squash")
    assert own.resizing == Resizing("bicubic", crop_to_aspect_ratio=True) and squashed.resizing is None
    assert own.identity() != squashed.identity()
    for config in (own, squashed):
        again = BackboneConfig.from_json(json.loads(json.dumps(config.to_json())))
        assert again.resizing == config.resizing and again.identity() == config.identity()
    with raises_argument("resize"):
        BackboneConfig("SmallConvNet", resize="preset")


def test_features_from_before_keep_their_pixels_and_fingerprint(preset_path) -> None:
    """They were computed from squashed images, and their description does not say how to resize."""
    config = BackboneConfig(f"hub:{preset_path('clip')}")
    preset = {key: value for key, value in (config.preset or {}).items() if key != "resizing"}
    stored = {key: value for key, value in config.to_json().items() if key != "resize"} | {"preset": preset}
    before = BackboneConfig.from_json(stored)
    assert before.resizing is None and before.to_json() == stored


def test_training_and_export_read_the_pixels_of_serving(preset_path) -> None:
    tower = Pixels(backbone=f"hub:{preset_path('clip')}")
    _, rows = photographs()
    encoded, ids = tf.constant(rows), np.arange(len(rows))
    wanted = decode_views(encoded, tower.config)[0][:, 0].numpy()
    split: Any = SimpleNamespace(
        ids=ids, encoded_images=lambda: tf.data.Dataset.from_tensor_slices((ids, encoded)), readable=iter
    )
    np.testing.assert_array_equal(tower.images(split, None).gather(ids), wanted)
    layer = tower.build(8, {}, seed=0, dtype="float32")
    copy = type(layer).from_config(layer.get_config())
    np.testing.assert_array_equal(copy.decode(encoded)[0], wanted)
    plain = decode_views(encoded, BackboneConfig(tower.backbone, resize="squash"))[0][:, 0].numpy()
    assert np.abs(plain - wanted).max() > 10, "the pixels are equal with any resizing"
