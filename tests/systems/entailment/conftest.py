"""Tiny entailment runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.systems.entailment.entailment_files import write_snli

#: What makes the entailment recipe small enough for a test.
SMALL = (*TINY, "loss.margin=0.2", "optimizer.learning_rate=0.02")


@pytest.fixture(scope="session")
def snli_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as SNLI's archive, 144, 36 and 36 pairs."""
    return write_snli(tmp_path_factory.mktemp("data") / "snli_1.0", train=144, val=36, test=36)


@pytest.fixture(scope="session")
def tiny_entailment_run(snli_path, tmp_path_factory: pytest.TempPathFactory):
    """An `EntailmentRun` of two epochs; treat it as read-only."""
    from vsemb import recipes
    from vsemb.systems.entailment.data import EntailmentData
    from vsemb.systems.entailment.run import train_entailment

    recipe = recipes.get("entailment").with_overrides(list(SMALL))
    return train_entailment(recipe, EntailmentData.open(snli_path), tmp_path_factory.mktemp("runs") / "snli")
