"""An exported model with every signature, shared by the tests of what is exported."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def served_everything(tiny_pixel_run):
    """A `ServedModel` of a run on pixels with classes and a corpus of ten items; treat it as read-only."""
    from vsemb.export import ClassPrompts, Corpus, ServedModel
    from vsemb.runs.serve import image_input

    run, random = tiny_pixel_run, np.random.default_rng(0)
    vectors = random.normal(size=(10, 16)).astype(np.float32)
    corpus = Corpus(
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        np.arange(10) + 2**40,
        [f"image {number}" for number in range(10)],
    )
    classes = ClassPrompts(("red circle", "blue square"), random.normal(size=(2, 3, 16)).astype(np.float32))
    return ServedModel(run.model, run.tokenizer, image_input(run), classes, corpus)


@pytest.fixture(scope="session")
def everything(served_everything, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory `savedmodels/scenes` of that model, with one version; treat it as read-only."""
    from vsemb.export import export_savedmodel

    served = served_everything
    out = tmp_path_factory.mktemp("everything") / "savedmodels" / "scenes"
    export_savedmodel(
        served.model,
        served.tokenizer,
        out,
        image_input=served.image_input,
        classes=served.classes,
        corpus=served.corpus,
        fingerprint="c0ffee",
    )
    return out


@pytest.fixture
def everything_copy(everything: Path, tmp_path: Path) -> Path:
    """A copy of `everything`, and of its contract, that a test may change."""
    return shutil.copytree(everything.parent, tmp_path / "savedmodels") / everything.name
