"""A tiny run of normal distributions."""

from __future__ import annotations

import pytest

from tests.tiny import tiny
from vsemb import recipes


@pytest.fixture(scope="session")
def pcme_run(scenes, trained):
    """A `Run` of the recipe pcme on the features of `scenes`; treat it as read-only."""
    recipe = tiny(recipes.get("pcme"), "optimizer.learning_rate=0.02", "training.epochs=4")
    return trained("tiny-pcme", recipe, scenes)
