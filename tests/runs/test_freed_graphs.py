"""A model that was trained and deleted leaves no graph, and so none of its weights, in the process."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from tensorflow.python.framework.func_graph import FuncGraph

from tests.tiny import tiny
from vsemb import recipes, train


def graphs() -> list[FuncGraph]:
    gc.collect()
    gc.collect()
    return [value for value in gc.get_objects() if isinstance(value, FuncGraph)]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vsepp", ["training.epochs=1"]),  # Loops of ours, with a gradient of their own.
        ("vsepp", ["training.epochs=1", "chunk_size=8"]),
        ("kiros2014", ["training.epochs=1"]),  # Keras sums gradients over replicas.
    ],
)
def test_training_leaves_no_graph(name: str, settings: list[str], scenes: Any, tmp_path: Any) -> None:
    recipe = tiny(recipes.get(name), *settings)
    before = graphs()  # Kept, so that all graphs above these are new.
    run = train(recipe, scenes, tmp_path / "run")
    del run
    assert len(graphs()) == len(before)
