"""A dataset with cached regions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.data.conftest import Tiny
from tests.systems.regions.region_folders import CONFIG, IMAGES, REGIONS
from vsemb.data.store import Dataset
from vsemb.systems.regions.compute import cache_regions


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """The folder of a dataset with cached regions; `with_regions` is a copy that a test may change."""
    dataset = Tiny().write(Tiny().records(IMAGES), tmp_path_factory.mktemp("regions") / "data")
    cache_regions(dataset, CONFIG, REGIONS, weights=None, batch_size=4)
    return dataset.path


@pytest.fixture
def with_regions(made: Path, tmp_path: Path):
    """A `Dataset` with cached regions, which a test may change."""
    return Dataset.open(shutil.copytree(made, tmp_path / "data"))


@pytest.fixture(scope="session")
def region_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two exported models of regions: `sets` proposes them, `given` is sent candidates; read-only."""
    from tests.systems.regions.region_model import region_parts
    from vsemb.exporting import ServedModel, export_savedmodel

    folder = tmp_path_factory.mktemp("models")
    for name, options in {"sets": {}, "given": {"source": "selective-search", "pooling": "map"}}.items():
        export_savedmodel(ServedModel(*region_parts(**options)), folder / name, fingerprint="c0ffee")
    return folder
