"""Opening runs of every task."""

from __future__ import annotations

import pytest

from vsemb import recipes, registry
from vsemb.errors import DataError
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Recipe
from vsemb.runs.run import Run


def test_the_recipe_decides(tiny_run, tmp_path) -> None:
    run = Run.open(tiny_run.path)
    assert type(run) is Run and type(run.recipe) is Retrieval
    assert Run.open(tiny_run.path, "retrieval").recipe == run.recipe
    with pytest.raises(DataError, match="run for captions; it was trained with the recipe 'vsepp', which is for retr"):
        Run.open(tiny_run.path, "captions")
    with pytest.raises(DataError, match="must be a run directory"):
        Run.open(tmp_path)


def test_every_recipe_is_of_a_task_with_a_protocol() -> None:
    for name in registry.entries("recipes"):
        recipe = recipes.get(name)
        assert isinstance(recipe, Recipe) and recipe.kind in registry.kinds("task")
    with pytest.raises(DataError, match="Did you mean 'retrieval'"):
        Recipe.from_json({"kind": "retrival", "name": "x"})
