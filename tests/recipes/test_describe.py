"""Descriptions: each recipe is found in its file."""

from __future__ import annotations

import pytest

from vsemb import recipes
from vsemb.errors import InvalidArgumentError
from vsemb.recipes.describe import description, module_of


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_recipe_has_an_equation_table(name):
    assert "| equation | what | where |" in description(name)


def test_two_recipes_of_one_paper_share_its_file():
    assert module_of("kiros2014") is module_of("kiros2014-linear")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'vsepp'"):
        module_of("vsep")
