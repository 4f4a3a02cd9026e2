"""Scenes whose splits share no class, and a tiny run on them; several rooms' tests measure these."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.conftest import word_sums
from vsemb.data import synthetic as generator
from vsemb.data.features.compute import write_precomputed
from vsemb.data.store import Dataset
from vsemb.data.writing.writer import write_dataset
from vsemb.recipes.schema import Recipe
from vsemb.runs.run import Run
from vsemb.runs.train import train

COUNTS = {"train": 120, "val": 16, "test": 48}


def write_class_scenes(path: Path) -> Dataset:
    """Writes scenes of classes such as "red circle", 15 of them in test, with features that tell captions."""
    source = {"format": "scenes", "path_name": "vsemb.data.synthetic", "sha256": {}, "options": {}}
    records = generator.generate(COUNTS, seed=5, image_size=32, class_zero_shot_splits=True)
    dataset = write_dataset(records, path, name="class-scenes", source=source)
    splits = [dataset.split(name) for name in dataset.splits]
    features = [word_sums(entry["captions"]) for split in splits for entry in split.entries]
    write_precomputed(dataset, np.concatenate([split.ids for split in splits]), 4 * np.stack(features))
    return dataset


def train_on_classes(recipe: Recipe, dataset: Dataset, out: Path) -> Run:
    """Trains long enough to recognise classes far better than by chance."""
    return train(recipe.with_overrides(["training.epochs=4"]), dataset, out)
