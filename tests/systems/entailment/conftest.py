"""Tiny entailment runs."""

from __future__ import annotations

import pytest

#: What makes the entailment recipe small enough for a test.
SMALL = (
    "embedding_dim=16",
    "text.encoder.words.dim=16",
    "text.encoder.units=16",
    "batches.size=8",
    "training.epochs=2",
    "training.seed=3",
    "loss.margin=0.2",
    "optimizer.learning_rate=0.02",
)


@pytest.fixture(scope="session")
def tiny_entailment_run(snli_path, trained):
    """A `Run` of two epochs; treat it as read-only."""
    from vsemb import recipes

    return trained("entailment", recipes.get("entailment").with_overrides(SMALL), snli_path)
