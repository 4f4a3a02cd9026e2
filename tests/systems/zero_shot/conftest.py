"""Tiny runs of zero-shot recognition that several files measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import MadeOnce, word_sums
from tests.tiny import tiny


@pytest.fixture(scope="session")
def class_scenes(made_once: MadeOnce):
    """Scenes of classes such as "red circle", 15 of them in test, which splits do not share; treat it as read-only."""
    from vsemb.data import synthetic as generator
    from vsemb.data.features.compute import write_precomputed
    from vsemb.data.store import StoredDataset
    from vsemb.data.writing.writer import write_dataset

    def make(path: Path) -> None:
        source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
        counts = {"train": 120, "val": 16, "test": 48}
        records = generator.generate(counts, seed=5, image_size=32, class_zero_shot_splits=True)
        dataset = write_dataset(records, path, name="class-scenes", source=source)
        splits = [dataset.split(name) for name in dataset.splits]
        features = [word_sums(own) for split in splits for own in split.caption_lists()]
        write_precomputed(dataset, np.concatenate([split.ids for split in splits]), 4 * np.stack(features))

    return StoredDataset.open(made_once("class-scenes", make))


@pytest.fixture(scope="session")
def class_run(class_scenes, tiny_recipe, trained):
    """A `Run` on `class_scenes` that recognizes classes far better than by chance; treat it as read-only."""
    return trained("class-run", tiny_recipe.with_overrides(["training.epochs=4"]), class_scenes)


@pytest.fixture(scope="session")
def flowers(flowers_path: Path):
    """The tiny flowers as a `Dataset`; treat it as read-only."""
    from vsemb.data.store import StoredDataset

    return StoredDataset.open(flowers_path)


@pytest.fixture(scope="session")
def sje_recipe() -> Callable:
    """Makes of a name a recipe of two epochs of two steps over 40 classes, with small layers."""
    from vsemb import recipes

    return lambda name, *overrides: tiny(recipes.get(name), "batches.size=40", *overrides)


@pytest.fixture(scope="session")
def sje_run(flowers, sje_recipe, trained) -> Callable:
    """`sje_run(encoder)` is a `Run` of `sje_recipe` of this encoder on `flowers`; treat it as read-only."""
    return lambda encoder: trained(f"sje-{encoder}", sje_recipe(f"ds-sje-{encoder}"), flowers)
