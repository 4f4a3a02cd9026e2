"""Measuring a run by the field's protocols."""

from __future__ import annotations

from vsemb.data.store import Dataset
from vsemb.evaluation import Embedder, RetrievalMetrics, evaluate_retrieval
from vsemb.recipes.run import Run


def evaluate_run(
    run: Run, dataset: Dataset, split: str = "val", *, folds: int = 1, bootstrap: int = 0
) -> RetrievalMetrics:
    """Measures image-sentence retrieval on a split.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        folds: see `evaluate_retrieval`.
        bootstrap: see `evaluate_retrieval`.

    Raises:
        VsembError: if run and dataset do not fit, or the split is not there.
    """
    part = dataset.split(split)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, part), len(part))
    captions, rows = run.texts_of(part)
    texts = embedder.texts(*run.tokenizer.encode(captions))
    return evaluate_retrieval(
        images,
        texts,
        part.ids,
        part.ids[rows],
        run.model.similarity,
        folds=folds,
        bootstrap=bootstrap,
    )
