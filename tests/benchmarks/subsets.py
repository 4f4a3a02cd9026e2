"""Trainings on parts of a dataset, without a run directory, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.evaluation import Embedder
from vsemb.recipes.retrieval import Retrieval, RetrievalJob


class Subset:
    """Some images of a split and some of their captions, in place of a `vsemb.data.store.Split`.

    Args:
        split: the split.
        rows: rows of the images, ascending.
        kept: for each caption of the split, whether it is left.
    """

    def __init__(self, split: Split, rows: np.ndarray, kept: np.ndarray) -> None:
        captions, keys = list(split.captions), list(split.keys)
        of_image = {row: [i for i in range(*split.caption_offsets[row : row + 2]) if kept[i]] for row in rows.tolist()}
        left = [row for row, own in of_image.items() if own]
        self.name, self.dataset, self.has_classes = split.name, None, False
        self.ids, self.keys = split.ids[left], [keys[row] for row in left]
        self.captions = [captions[place] for row in left for place in of_image[row]]
        self.caption_offsets = np.cumsum([0, *(len(of_image[row]) for row in left)])

    def __len__(self) -> int:
        return len(self.ids)

    def first_captions(self, count: int | None) -> Subset:
        assert count is None
        return self

    def rows_of(self, captions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.caption_offsets, captions, "right") - 1


class Reduced:
    """A dataset whose split `train` is a subset, in place of a `vsemb.data.store.StoredDataset`."""

    def __init__(self, dataset: StoredDataset, train: Subset) -> None:
        self._dataset, self._train = dataset, train

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def split(self, name: str) -> Any:
        return self._train if name == "train" else self._dataset.split(name)


def epochs_of(dataset: Any, recipe: Retrieval) -> Iterator[tuple[RetrievalJob, Any]]:
    """Trains a recipe, and yields its job and its model after every epoch.

    Args:
        dataset: a dataset, or a `Reduced` one.
        recipe: the recipe; a bank of hubs is filled after every epoch.
    """
    job = RetrievalJob(recipe, dataset)
    batches = job.batches()
    model = job.model(recipe, recipe.training.training_dtype)
    steps = batches.steps_per_epoch
    model.compile(optimizer=recipe.optimizer.build(steps, recipe.training.epochs), loss=job.loss(steps))
    validation = job.validation()
    validation.set_model(model)
    for epoch in range(recipe.training.epochs):
        model.fit(batches.dataset(epoch), epochs=1, steps_per_epoch=steps, verbose=0, shuffle=False)
        if recipe.hub_bank is not None:
            validation.on_epoch_end(epoch, {})
        yield job, model


def embedded(model: Any, job: RetrievalJob, split: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Embeds images and captions.

    Returns:
        Embeddings of the images and of the captions, ids of the images, and for each caption the id of its image.
    """
    embedder = Embedder(model)
    images = embedder.images(job.recipe.image.images(split, job.store), len(split))
    texts = embedder.texts(*job.tokenizer.encode(list(split.captions)))
    return images, texts, split.ids, split.ids[split.rows_of(np.arange(len(split.captions)))]
