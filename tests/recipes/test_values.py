"""The values of every recipe, against the files that `python -m tests.recipe_values` writes."""

from __future__ import annotations

import json

import pytest

from tests.recipe_values import TESTS, difference, variants
from vsemb import recipes

VARIANTS = dict(variants())


@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.stem)
def test_values(file) -> None:
    recipe = VARIANTS[file]
    same = file.is_file() and json.loads(file.read_text(encoding="utf-8")) == json.loads(json.dumps(recipe.to_json()))
    assert same, f"{difference(file, recipe)}\nIf it is meant: python -m tests.recipe_values"


def test_no_file_is_left_of_a_variant_that_is_gone() -> None:
    written = {*TESTS.glob("recipes/values/*.json"), *TESTS.glob("systems/*/recipes/*.json")}
    assert written == set(VARIANTS)


def test_a_way_up_from_images_to_captions() -> None:
    # The reversed ablation of Vendrov et al. is a similarity of its own.
    reversed_ = recipes.get("order-embedding").with_overrides(["similarity=order-reversed"])
    assert reversed_.similarity.kind == "order-reversed"
