"""An exported model with every signature, shared by the tests of what is exported."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def served_everything(tiny_pixel_run):
    """A `ServedModel` of a run on pixels with a further signature and a corpus of ten items; read-only."""
    from tests.label_signature import Labels
    from vsemb.exporting import Corpus, ServedModel

    run, random = tiny_pixel_run, np.random.default_rng(0)
    vectors = random.normal(size=(10, 16)).astype(np.float32)
    corpus = Corpus(
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        np.arange(10) + 2**40,
        [f"image {number}" for number in range(10)],
    )
    labels = Labels(random.normal(size=(2, 16)).astype(np.float32))
    return ServedModel(run.model, run.tokenizer, run.image_input, corpus=corpus, extras=[labels.signature])


@pytest.fixture(scope="session")
def everything(served_everything, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory `savedmodels/scenes` of that model, with one version; treat it as read-only."""
    from vsemb.exporting import export_savedmodel

    out = tmp_path_factory.mktemp("everything") / "savedmodels" / "scenes"
    export_savedmodel(served_everything, out, fingerprint="c0ffee")
    return out


@pytest.fixture
def everything_copy(everything: Path, tmp_path: Path) -> Path:
    """A copy of `everything`, and of its contract, that a test may change."""
    return shutil.copytree(everything.parent, tmp_path / "savedmodels") / everything.name
