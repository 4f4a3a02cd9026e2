"""Image networks that systems add, named by a prefix and a name, such as `hub:vit_base_patch16_224_imagenet`.

A system registers the class of its networks under their prefix, see `vsemb.registry.System.presets`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import keras

from vsemb import registry

#: Folder in a run directory for the configurations of its presets.
KEPT = "presets"


@dataclass(frozen=True)
class Preset:
    """An image network of a system without its weights; fields are JSON values, which runs store.

    Attributes:
        size: side of the images that it was trained on, in pixels.
        resizing: fields of the `vsemb.image.resizing.Resizing` of its images; None for the one of other networks.
    """

    size: int
    resizing: dict[str, Any] | None = None

    @classmethod
    def open(cls, name: str) -> Self:
        """Read the preset of a name.

        Raises:
            DataError: if the preset cannot be opened.
        """
        raise NotImplementedError

    @property
    def any_size(self) -> bool:
        """Whether the network accepts images of other sizes."""
        raise NotImplementedError

    @property
    def gives_map(self) -> bool:
        """Whether the network's output is a feature map, (batch, height, width, channels)."""
        raise NotImplementedError

    @property
    def poolings(self) -> tuple[str, ...]:
        """Poolings of the network's output, the default first."""
        raise NotImplementedError

    @property
    def inner_maps(self) -> tuple[str, ...]:
        """Names of inner layers that give a map.

        Their means are levels of `"multilevel"` and `"regional"` pooling, and the layers above the first can be
        trained, see `vsemb.image.backbones.Architecture`.

        Raises:
            DataError: if the network cannot be built.
        """
        raise NotImplementedError

    def build(self, name: str, seed: int, *, own_weights: bool) -> keras.Model:
        """Build the network without scaling and pooling, with the preset's weights if `own_weights`, else random ones.

        Raises:
            DataError: if the weights cannot be loaded, or belong to another network.
        """
        raise NotImplementedError

    def scaled(self, pixels: Any) -> Any:
        """Scale pixels in 0..255, the input of a functional model, to the network's range."""
        raise NotImplementedError

    def pooled(self, features: Any, pooling: str, pool_map: Callable[[Any], Any]) -> Any:
        """Pool the network's output to one vector per image.

        Args:
            features: output of the network.
            pooling: one of `poolings`.
            pool_map: pools a map.
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
