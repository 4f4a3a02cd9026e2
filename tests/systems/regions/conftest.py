"""A dataset with cached regions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.data.conftest import Tiny
from tests.systems.regions.region_folders import CONFIG, IMAGES, REGIONS
from vsemb.data.store import StoredDataset
from vsemb.systems.regions.compute import cache_regions


@pytest.fixture(scope="session")
def made(made_once) -> Path:
    """The folder of a dataset with cached regions; `with_regions` is a copy that a test may change."""

    def make(path: Path) -> None:
        dataset = Tiny().write(Tiny().records(IMAGES), path)
        cache_regions(dataset, CONFIG, REGIONS, weights=None, batch_size=4)

    return made_once("cached-regions", make)


@pytest.fixture
def with_regions(made: Path, tmp_path: Path):
    """A `Dataset` with cached regions, which a test may change."""
    return StoredDataset.open(shutil.copytree(made, tmp_path / "data"))


@pytest.fixture(scope="session")
def region_models(made_once) -> Path:
    """Two exported models; `sets` proposes regions, `given` is sent candidates and has cosines in bfloat16."""
    from tests.systems.regions.region_model import region_parts
    from vsemb.exporting import ServedModel, export_savedmodel

    def make(folder: Path) -> None:
        given = region_parts("cross-attention", "mixed_bfloat16", source="selective-search", pooling="map")
        for name, parts in {"sets": region_parts(), "given": given}.items():
            export_savedmodel(ServedModel(*parts), folder / name, fingerprint="c0ffee")

    return made_once("region-models", make)
