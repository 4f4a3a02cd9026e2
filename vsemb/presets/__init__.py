"""Presets of keras-hub: networks, tokenizers and preprocessing by name, or in a directory."""

from vsemb.presets.directories import (
    PREFIX,
    display_name,
    is_preset,
    keep_preset,
    kept_name,
    preset_directory,
    require_preset,
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
    "kept_name",
    "learned_scale",
    "load_network",
    "preset_directory",
    "require_preset",
    "source_of",
    "text_network",
]
