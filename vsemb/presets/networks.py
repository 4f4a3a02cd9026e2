"""The networks of presets: an image tower, a text tower, and how both are compared.

CLIP is arXiv:2103.00020, SigLIP arXiv:2303.15343, ViT arXiv:2010.11929.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from vsemb.errors import DataError
from vsemb.files import write_json
from vsemb.presets.directories import CONFIG, CONVERTER, opening, preset_directory, read_part, source_of

#: Networks of an image tower and a text tower.
DUAL = ("CLIPBackbone", "SigLIPBackbone")
#: Networks that give a vector a patch -> how many vectors come before those of the patches.
_PATCHES = {
    "ViTBackbone": lambda config: int(config.get("use_class_token", True)),
    "DeiTBackbone": lambda config: 2,
    "DINOV2Backbone": lambda config: 1 + int(config.get("num_register_tokens", 0)),
}


@dataclass(frozen=True)
class ImagePreset:
    """What is known of a preset's image network but its weights.

    Attributes:
        network: keras-hub's configuration of the network, or of the dual encoder that it is part of.
        size: side of the images that it was trained on, in pixels.
        scale: what pixels in 0..255 are multiplied by, one number or one a channel; None for nothing.
        offset: what is added then.
    """

    network: dict[str, Any]
    size: int
    scale: float | list[float] | None = None
    offset: float | list[float] | None = None

    @classmethod
    def open(cls, name: str) -> ImagePreset:
        """Reads a preset.

        Args:
            name: see `vsemb.presets.directories`.

        Raises:
            DataError: if it cannot be opened, or says nothing of images.
        """
        directory = preset_directory(name)
        network, converter = read_part(directory, CONFIG), read_part(directory, CONVERTER)
        assert network is not None
        if converter is None:
            raise DataError(
                f"The preset {name!r} does not say what its network wants done to pixels: it has no "
                f"{CONVERTER}. Add it with keras_hub.layers.ImageConverter(...).save_to_preset(DIRECTORY)."
            )
        import keras_hub  # noqa: F401  # Names the classes that are read.

        with opening(str(directory)):
            read = keras.saving.deserialize_keras_object(converter)
            scale, offset = (_plain(getattr(read, key)) for key in ("scale", "offset"))
            config = network["config"]
            within = config["vision_encoder"]["config"] if _kind(network) in DUAL else config
            sides = tuple(within.get("image_shape") or within.get("input_shape") or ())[:2]
            own = read.image_size
        sides = sides if sides and None not in sides else own
        if not sides or sides[0] != sides[1]:
            raise DataError(f"The preset {name!r} does not take square images of one size, but {sides}.")
        return cls(network, int(sides[0]), scale, offset)

    @property
    def kind(self) -> str:
        """What the network gives: `"embedding"`, a vector an image in a space shared with texts; `"patches"`,
        a vector a patch; or `"map"`, one a place.
        """
        kind = _kind(self.network)
        return "embedding" if kind in DUAL else "patches" if kind in _PATCHES else "map"

    @property
    def any_size(self) -> bool:
        """Whether it takes images of other sizes."""
        config = self.network["config"]
        shape = config.get("image_shape") or config.get("input_shape")
        return self.kind == "map" and (shape is None or None in shape)

    @property
    def before_patches(self) -> int:
        """How many vectors, of the class and other tokens, come before those of the patches."""
        return _PATCHES[_kind(self.network)](self.network["config"]) if self.kind == "patches" else 0

    def to_json(self) -> dict[str, Any]:
        """Returns it as a JSON object; `ImagePreset(**value)` reads it."""
        return asdict(self)


def load_network(name: str, dtype: Any = "float32") -> keras.Model:
    """Opens a preset's whole network with its weights, which keras-hub downloads where it has to.

    Raises:
        DataError: if it cannot be got.
    """
    import keras_hub

    source = source_of(name)
    preset_directory(name)
    with opening(source):
        return keras_hub.models.Backbone.from_preset(source, dtype=dtype)


def build_network(network: Mapping[str, Any], dtype: Any = "float32") -> keras.Model:
    """Builds a network from keras-hub's configuration, its weights as Keras draws them.

    Raises:
        DataError: if keras-hub cannot build it.
    """
    import keras_hub

    with tempfile.TemporaryDirectory(prefix="vsemb-preset-") as folder:
        write_json(Path(folder) / CONFIG, dict(network))
        with opening(folder):
            built = keras_hub.models.Backbone.from_preset(folder, load_weights=False, dtype=dtype)
    for weight in built.weights:
        # CLIP's come with the weights, and are all 0 without.
        if weight.name == "position_ids":
            weight.assign(np.arange(math.prod(weight.shape)).reshape(weight.shape))
    return built


def image_network(network: keras.Model) -> keras.Model:
    """Returns the part of a network that takes images: of a dual encoder, up to the space of both."""
    if type(network).__name__ not in DUAL:
        return network
    images = keras.Input(network.vision_encoder.image_shape, name="images")
    return keras.Model(images, network.get_vision_embeddings(images), name="image_network")


def text_network(network: keras.Model) -> keras.Model:
    """Returns the text tower of a dual encoder: its own token ids (batch, steps) to (batch, dim).

    Raises:
        DataError: for a network that has none.
    """
    _need_dual(network)
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    return keras.Model(ids, network.get_text_embeddings(ids), name="text_network")


def learned_scale(network: keras.Model) -> tuple[float, float | None]:
    """Returns what a dual encoder multiplies cosines by, and what it adds, None for CLIP.

    Raises:
        DataError: for a network of one tower.
    """
    _need_dual(network)
    head = network.clip_head if type(network).__name__ == "CLIPBackbone" else network.siglip_head
    factor = math.exp(float(keras.ops.convert_to_numpy(head.logit_scale)))
    bias = getattr(head, "logit_bias", None)
    return factor, None if bias is None else float(keras.ops.convert_to_numpy(bias))


def _need_dual(network: keras.Model) -> None:
    if type(network).__name__ not in DUAL:
        raise DataError(
            f"A {type(network).__name__} has no text tower; those of {' and '.join(DUAL)} have. As an image "
            "tower: vsemb features DATA --backbone hub:PRESET"
        )


def _kind(network: Mapping[str, Any]) -> str:
    return str(network.get("class_name", ""))


def _plain(value: Any) -> float | list[float] | None:
    if value is None:
        return None
    found = np.asarray(value, np.float64)
    return float(found) if found.ndim == 0 else [float(entry) for entry in found]
