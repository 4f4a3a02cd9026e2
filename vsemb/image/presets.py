"""The interface of image networks, and networks that systems add under a prefix, such as `hub:vit_base_patch16_224`.

A system registers the class of its networks under their prefix, see `vsemb.registry.System.presets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np

from vsemb import registry
from vsemb.image.pooling import MAP_POOLINGS, pooled_map

if TYPE_CHECKING:
    from vsemb.image.backbones import BackboneConfig

#: Folder in a run directory for the configurations of its presets.
KEPT = "presets"


@dataclass(frozen=True)
class Network:
    """An image network without its weights. The defaults suit a network that gives a map and has no inner maps.

    Attributes:
        size: side of the images that it was trained on, in pixels.
        resizing: fields of the `vsemb.image.resizing.Resizing` of its images; None for the one of other networks.
        published: name of its published weights, `"imagenet"` or `"preset"`; None if it is trained from scratch.
        has_classifier: whether `with_classifier` can build it, and a weights file may have its classifier, too.
    """

    published: ClassVar[str | None] = None
    has_classifier: ClassVar[bool] = False

    size: int
    resizing: dict[str, Any] | None = field(default=None, kw_only=True)

    @property
    def any_size(self) -> bool:
        """Whether the network accepts images of other sizes."""
        return True

    @property
    def gives_map(self) -> bool:
        """Whether the network's output is a feature map, (batch, height, width, channels)."""
        return self.poolings == MAP_POOLINGS

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings of the network's output."""
        return MAP_POOLINGS

    @property
    def pooling(self) -> str:
        """The default pooling."""
        return self.poolings[0]

    @property
    def inner_maps(self) -> tuple[str, ...]:
        """Names of inner layers that give a map. The layers above can be trained; the first is the default.

        A preset builds its network to find them, so they are read only where they are used.

        Raises:
            DataError: if the network cannot be built.
        """
        return ()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of inner layers that can replace the network's output."""
        return self.inner_maps

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of inner layers whose mean `"multilevel"` and `"regional"` pooling add."""
        return self.inner_maps

    def build(self, config: BackboneConfig, weights: str | None = None) -> keras.Model:
        """Build the network without scaling and pooling, with the weights that `published` names, or with any.

        Raises:
            DataError: if the weights cannot be loaded, or belong to another network.
            InvalidArgumentError: if the network cannot work at the size of `config`.
        """
        raise NotImplementedError

    def with_classifier(self, name: str, weights: str | None = None) -> keras.Model:
        """Build the network with its classifier, for images of its own size and with weights as for `build`."""
        raise NotImplementedError

    def set_random(self, network: keras.Model, seed: int) -> None:
        """Draw He-normal kernels; biases and normalization weights keep their constant initial values."""
        random = np.random.default_rng(seed)
        for weight in network.trainable_weights:
            if len(weight.shape) > 1:
                # The last axis of a depthwise kernel is the multiplier.
                depthwise = weight.shape[-1] == 1
                inputs = np.prod(weight.shape[:2] if depthwise else weight.shape[:-1])
                weight.assign(random.standard_normal(weight.shape, np.float32) * np.sqrt(2.0 / inputs))

    def scaled(self, pixels: Any) -> Any:
        """Scale pixels in 0..255, the input of a functional model, to the network's range."""
        raise NotImplementedError

    def pooled(self, features: Any, pooling: str, levels: Sequence[Any] = ()) -> Any:
        """Pool the network's output to one vector per image, see `pooled_map`; such vectors stay as they are."""
        return features if len(features.shape) == 2 else pooled_map(features, pooling, levels)


@dataclass(frozen=True)
class Preset(Network):
    """An image network of a system; fields are JSON values, which runs store."""

    published = "preset"

    @classmethod
    def open(cls, name: str) -> Self:
        """Read the preset of a name.

        Raises:
            DataError: if the preset cannot be opened.
        """
        raise NotImplementedError

    @staticmethod
    def keep(name: str, run: Path) -> None:
        """Write the network's configuration into a run directory, without weights."""
        raise NotImplementedError

    @staticmethod
    def kept_name(name: str, run: Path) -> str:
        """Return the name of the configuration that `keep` wrote."""
        raise NotImplementedError

    @staticmethod
    def display_name(name: str) -> str:
        """Return the published name of the preset, also for a copy in a run."""
        raise NotImplementedError


def preset_class(name: object) -> type[Preset] | None:
    """Return the class of a preset's network by its name; None for other names."""
    prefix, colon, _ = str(name).partition(":")
    if not colon:
        return None
    reference = registry.entries("presets").get(prefix)
    return None if reference is None else registry.load(reference)


def is_preset(name: object) -> bool:
    """Return whether a name is the name of a preset.

    Example:

    >>> is_preset("MobileNetV2")
    False
    """
    return preset_class(name) is not None


def display_name(name: str) -> str:
    """Return the published name of a network.

    Example:

    >>> display_name("MobileNetV2")
    'MobileNetV2'
    """
    preset_type = preset_class(name)
    return name if preset_type is None else preset_type.display_name(name)
