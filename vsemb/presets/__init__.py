"""Presets of keras-hub: networks, tokenizers and preprocessing by name, or in a directory."""

from vsemb.presets.directories import (
    PREFIX,
    display_name,
    is_preset,
    keep_preset,
    preset_directory,
    source_of,
)
from vsemb.presets.networks import (
    DUAL,
    ImagePreset,
    build_network,
    image_network,
    learned_scale,
    load_network,
    text_network,
)

__all__ = [
    "DUAL",
    "PREFIX",
    "ImagePreset",
    "build_network",
    "display_name",
    "image_network",
    "is_preset",
    "keep_preset",
    "learned_scale",
    "load_network",
    "preset_directory",
    "source_of",
    "text_network",
]
