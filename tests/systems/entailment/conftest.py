"""Tiny entailment runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.entailment.entailment_files import write_snli

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
def snli_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as SNLI's archive, 144, 36 and 36 pairs."""
    return write_snli(tmp_path_factory.mktemp("data") / "snli_1.0", train=144, val=36, test=36)


@pytest.fixture(scope="session")
def tiny_entailment_run(snli_path, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of two epochs; treat it as read-only."""
    from vsemb import recipes
    from vsemb.runs.train import train

    recipe = recipes.get("entailment").with_overrides(SMALL)
    return train(recipe, snli_path, tmp_path_factory.mktemp("runs") / "snli")
