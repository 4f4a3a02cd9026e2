"""Shared by the tests of what is exported: the model that `exported` was made of, and copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def served_everything(tiny_pixel_run, pixel_index: Path):
    """A `ServedModel` as in `exported`; read-only."""
    from tests.label_signature import Labels
    from vsemb.exporting import Corpus, ServedModel
    from vsemb.searching.storage import read_index

    run, index = tiny_pixel_run, read_index(pixel_index)
    extras = [Labels.of(index).signature]
    return ServedModel(run.model, run.tokenizer, run.image_input, corpus=Corpus.of(index), extras=extras)


@pytest.fixture
def exported_copy(exported: Path, tmp_path: Path) -> Path:
    """A copy of `exported`, and of its contract, that a test may change."""
    return shutil.copytree(exported.parent, tmp_path / "savedmodels") / exported.name


@pytest.fixture
def written(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports do not write their model but `exported` in its place, which takes no time."""
    from vsemb.exporting import savedmodel

    def write(served, directory):
        shutil.copytree(exported / "1", directory, dirs_exist_ok=True)
        return []

    monkeypatch.setattr(savedmodel, "write", write)
