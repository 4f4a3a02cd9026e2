"""Opening runs of every task."""

from __future__ import annotations

import typing

import pytest
from vsemb.runs.tasks import RUNS, open_run

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.recipes import RECIPES, Recipe
from vsemb.recipes.schema import TASKS
from vsemb.runs.run import Run
from vsemb.systems.entailment.run import EntailmentRun


def test_the_recipe_decides(tiny_run, tiny_entailment_run, tmp_path) -> None:
    assert type(open_run(tiny_run.path)) is Run
    assert type(open_run(tiny_entailment_run.path)) is EntailmentRun
    with pytest.raises(DataError, match="is no run"):
        open_run(tmp_path)


def test_every_task_has_its_runs() -> None:
    assert tuple(RUNS) == TASKS
    assert all(cls.task == task for task, cls in RUNS.items())
    assert {recipe.task for variants in RECIPES.values() for recipe in variants.values()} <= set(TASKS)
    assert typing.get_type_hints(Recipe)["task"] is str
    with pytest.raises(InvalidArgumentError, match="Did you mean 'entailment'"):
        Recipe(name="x", task="entailments")
