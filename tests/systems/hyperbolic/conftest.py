"""A tiny run in hyperbolic space."""

from __future__ import annotations

import pytest

from tests.tiny import tiny
from vsemb import recipes


@pytest.fixture(scope="session")
def meru_run(scenes, trained):
    """A `Run` of the recipe meru on the features of `scenes`; treat it as read-only."""
    recipe = tiny(recipes.get("meru"), "optimizer.learning_rate=0.02", "training.epochs=4")
    return trained("tiny-meru", recipe, scenes)
