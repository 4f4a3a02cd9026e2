"""Runs that several commands are tried with."""

from __future__ import annotations

import pytest

from tests.tiny import tiny


@pytest.fixture(scope="session")
def tiny_order_run(scenes, tmp_path_factory: pytest.TempPathFactory):
    """A `Run` of an order-embedding, two epochs on the features of `scenes`; treat it as read-only."""
    from vsemb import recipes
    from vsemb.runs.train import train

    recipe = tiny(recipes.get("order-embedding"), "optimizer.learning_rate=0.01")
    return train(recipe, scenes, tmp_path_factory.mktemp("runs") / "tiny-order")
