"""A tiny run from pixels as it is loaded: from its directory, as a SavedModel, and behind a server."""

from __future__ import annotations

from pathlib import Path

import pytest

import vsemb
from vsemb.runs.run import Run


@pytest.fixture(scope="session")
def model(tiny_pixel_run: Run) -> vsemb.Model:
    """`tiny_pixel_run`, loaded."""
    return vsemb.load(tiny_pixel_run.path)


@pytest.fixture(scope="session")
def pictures(scenes, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve PNG files, the images of the test split of `scenes`."""
    split, folder = scenes.split("test"), tmp_path_factory.mktemp("pictures")
    files = [folder / f"{row}.png" for row in range(len(split))]
    for row, file in enumerate(files):
        file.write_bytes(split.read_image(row))
    return files
