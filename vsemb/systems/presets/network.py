"""Image networks of keras-hub presets, as backbones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from vsemb.errors import DataError
from vsemb.image.pooling import MAP_POOLINGS
from vsemb.image.presets import Preset
from vsemb.systems.presets.converter import Converter
from vsemb.systems.presets.files import (
    CONFIG,
    CONVERTER,
    DUAL,
    TEXT,
    build_network,
    display_name,
    keep_preset,
    kept_name,
    load_network,
    opening,
    preset_directory,
    read_part,
)

if TYPE_CHECKING:
    from vsemb.image.backbones import BackboneConfig

# Output of the network -> poolings, the default first. `token` is the class token.
_POOLINGS = {
    "embedding": ("embedding",),
    "patches": ("token", "mean", "max", "mean+max", "flat"),
    "map": MAP_POOLINGS,
}
# Standard deviation of random transformer matrices, as in BERT and ViT.
_TRANSFORMER_DEVIATION = 0.02
# Networks with a vector per patch -> number of vectors before the patches.
_PATCHES: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "ViTBackbone": lambda config: int(config.get("use_class_token", True)),
    "DeiTBackbone": lambda config: 2,
    "DINOV2Backbone": lambda config: 1 + int(config.get("num_register_tokens", 0)),
}


@dataclass(frozen=True)
class ImagePreset(Preset):
    """Image network of a keras-hub preset, without weights.

    Attributes:
        network: keras-hub's configuration of the network, or of the dual encoder that contains it.
        scale, offset: see `Converter`.
    """

    network: dict[str, Any] = field(default_factory=dict)
    scale: float | list[float] | None = None
    offset: float | list[float] | None = None

    @classmethod
    def open(cls, name: str) -> ImagePreset:
        """Read a preset.

        Args:
            name: see `vsemb.systems.presets.files`.

        Raises:
            DataError: if it cannot be opened or has no image preprocessing.
        """
        directory = preset_directory(name)
        network, converter = read_part(directory, CONFIG), Converter.read(directory)
        assert network is not None
        if network["class_name"] in TEXT:
            raise DataError(
                f"The preset {name!r} must have an image network; got {network['class_name']}, a text network. To "
                f"train with it as text tower: text.encoder=preset, text.encoder.name={name}, text.tokenizer=preset "
                f"and text.tokenizer.name={name}."
            )
        if converter is None:
            raise DataError(
                f"The preset {name!r} must have the preprocessing of pixels, {CONVERTER}. Add it with "
                "keras_hub.layers.ImageConverter(...).save_to_preset(DIRECTORY)."
            )
        with opening(str(directory)):
            config = network["config"]
            if config.get("data_format") == "channels_first":
                raise DataError(f"`data_format` in {directory / CONFIG} must be channels_last; got channels_first.")
            within = config["vision_encoder"]["config"] if network.get("class_name") in DUAL else config
            shape = tuple(within.get("image_shape") or within.get("input_shape") or ())[:2]
            fixed = bool(shape) and None not in shape
            sides = shape if fixed else converter.image_size
            if not sides or sides[0] != sides[1] or int(sides[0]) < 1:
                raise DataError(f"The preset {name!r} must use square images of one size; got {sides}.")
            if converter.image_size not in (None, tuple(sides)):
                raise DataError(
                    f"`image_size` in {directory / CONVERTER} must be {list(sides)}, the size of the network; got "
                    f"{list(converter.image_size)}."
                )
            resizing = converter.resizing._asdict()
            preset = cls(int(sides[0]), network, converter.scale, converter.offset, resizing=resizing)
            # Values that are read later must be right, too.
            _ = preset.any_size, preset.poolings
        return preset

    @property
    def kind(self) -> str:
        """Kind of output: `"embedding"`, a vector per image in the space of texts; `"patches"`, a vector per patch;
        or `"map"`, a vector per grid cell.
        """
        name = self.network.get("class_name")
        if name in DUAL:
            return "embedding"
        return "patches" if name in _PATCHES else "map"

    @property
    def any_size(self) -> bool:
        """Whether the network accepts images of other sizes."""
        config = self.network["config"]
        shape = config.get("image_shape") or config.get("input_shape")
        return self.kind == "map" and (shape is None or None in shape)

    @property
    def before_patches(self) -> int:
        """Number of vectors of class and other tokens before the patches."""
        if self.kind != "patches":
            return 0
        return _PATCHES[self.network["class_name"]](self.network["config"])

    @property
    def poolings(self) -> tuple[str, ...]:
        if self.kind == "patches" and not self.before_patches:
            return tuple(pooling for pooling in _POOLINGS["patches"] if pooling != "token")
        return _POOLINGS[self.kind]

    @functools.cached_property
    def inner_maps(self) -> tuple[str, ...]:
        """The layer of the last but one level of keras-hub's feature pyramid, if there is one.

        Its map has twice the height and width of the last level's.
        """
        if not self.gives_map:
            return ()
        built = build_network(self.network)
        pyramid = getattr(built, "pyramid_outputs", {})
        for name in sorted(pyramid, reverse=True)[1:2]:
            layer = pyramid[name]._keras_history.operation
            if layer in built.layers and len(pyramid[name].shape) == 4:
                return (layer.name,)
        return ()

    def build(self, config: BackboneConfig, weights: str | None = None) -> keras.Model:
        network = image_network(build_network(self.network))
        ranks = {"map": 4, "patches": 3, "embedding": 2}
        outputs = network.outputs
        if len(outputs) != 1 or len(outputs[0].shape) != ranks[self.kind] or len(network.inputs) != 1:
            raise DataError(
                f"The network of the preset {config.name!r} must give a map of the image, a vector per patch (ViT, "
                f"DeiT, DINOv2), or an embedding (CLIP, SigLIP); got {self.network.get('class_name')}."
            )
        if weights is None:
            return network
        own = image_network(load_network(config.name))
        if [weight.shape for weight in own.weights] != [weight.shape for weight in network.weights]:
            raise DataError(
                f"The weights of the preset {config.name!r} must fit its configuration; the published network has "
                "changed."
            )
        return own

    def set_random(self, network: keras.Model, seed: int) -> None:
        """Draw random weights: convolutions He-normal, matrices and tokens as in ViT. Constants stay."""
        random = np.random.default_rng(seed)
        for weight in network.trainable_weights:
            if len(weight.shape) < 2:
                if weight.name == "bias":
                    weight.assign(np.zeros(weight.shape, np.float32))
                elif np.ptp(keras.ops.convert_to_numpy(weight)) > 0:
                    weight.assign(random.standard_normal(weight.shape, np.float32) * _TRANSFORMER_DEVIATION)
                continue
            inputs = math.prod(weight.shape[:2] if weight.shape[-1] == 1 else weight.shape[:-1])
            deviation = math.sqrt(2.0 / inputs) if len(weight.shape) == 4 else _TRANSFORMER_DEVIATION
            weight.assign(random.standard_normal(weight.shape, np.float32) * deviation)

    def scaled(self, pixels: Any) -> Any:
        if self.scale is None and self.offset is None:
            return pixels
        scale = 1.0 if self.scale is None else self.scale
        offset = 0.0 if self.offset is None else self.offset
        return keras.layers.Rescaling(scale, offset, dtype="float32", name="scaling")(pixels)

    def pooled(self, features: Any, pooling: str, levels: Sequence[Any] = ()) -> Any:
        if pooling == "token":
            return features[:, 0]
        if self.kind == "patches":
            # Patches become a map with one row.
            features = keras.ops.expand_dims(features[:, self.before_patches :], 1)
        return super().pooled(features, pooling, levels)

    @staticmethod
    def keep(name: str, run: Path) -> None:
        keep_preset(name, run, "image")

    @staticmethod
    def kept_name(name: str, run: Path) -> str:
        return kept_name(name, run, "image")

    @staticmethod
    def display_name(name: str) -> str:
        return display_name(name)


def image_network(network: keras.Model) -> keras.Model:
    """Return the image part of a network; for a dual encoder up to the joint space."""
    if type(network).__name__ not in DUAL:
        return network
    images = keras.Input(network.vision_encoder.image_shape, name="images")
    return keras.Model(images, network.get_vision_embeddings(images), name="image_network")
