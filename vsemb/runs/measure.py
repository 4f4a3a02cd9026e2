"""Measuring a run by the field's protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vsemb.data.store import Dataset
from vsemb.evaluation import Embedder, RetrievalMetrics, evaluate_retrieval
from vsemb.evaluation.retrieval import RECALLS, check_protocol
from vsemb.runs.run import Run


def evaluate_run(
    run: Run,
    dataset: Dataset,
    split: str = "val",
    *,
    folds: int = 1,
    bootstrap: int = 0,
    recalls: Sequence[int] = RECALLS,
    pairs: int | None = None,
) -> RetrievalMetrics:
    """Measures image-sentence retrieval on a split.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        folds: see `evaluate_retrieval`.
        bootstrap: see `evaluate_retrieval`.
        recalls: see `evaluate_retrieval`.
        pairs: see `evaluate_retrieval`; images are in the order of the dataset's index, captions in the
            order in which the image has them.

    Raises:
        VsembError: if run and dataset do not fit, the split is not there, or the protocol cannot be.
    """
    part = dataset.split(split)
    protocol: dict[str, Any] = {"folds": folds, "bootstrap": bootstrap, "recalls": recalls, "pairs": pairs}
    check_protocol(len(part), **protocol)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, part), len(part))
    captions, rows = run.texts_of(part)
    texts = embedder.texts(*run.encode(captions))
    return evaluate_retrieval(images, texts, part.ids, part.ids[rows], run.model.similarity, **protocol)
