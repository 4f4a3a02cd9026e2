"""What tests of cached regions share."""

from __future__ import annotations

from pathlib import Path

from vsemb.image.backbones import BackboneConfig
from vsemb.systems.regions.region_store import RegionConfig

CONFIG = BackboneConfig("SmallConvNet", size=32)
REGIONS = RegionConfig(count=3)
IMAGES = 11


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
