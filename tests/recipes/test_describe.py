"""Descriptions: each recipe is found in its file, and each of its fields is explained."""

from __future__ import annotations

import inspect

import pytest

from vsemb import recipes, registry
from vsemb.errors import InvalidArgumentError
from vsemb.recipes.describe import description, fields, summary, tree


@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_every_recipe_has_an_equation_table(name):
    assert "| equation | content | code |" in description(name)
    assert description(name).splitlines()[0] == summary(name)


def test_two_recipes_of_one_paper_share_its_file():
    assert description("kiros2014") == description("kiros2014-linear")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'vsepp'"):
        description("vsep")


@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_every_field_of_every_variant_is_explained(name):
    for recipe in recipes.variants(name).values():
        said = {field.path: field for field in fields(recipe)}
        assert not [path for path, field in said.items() if not field.explanation]
        assert len(said) == len(list(fields(recipe)))


def test_a_field_shows_what_it_takes_and_a_part_what_else_there_is():
    said = {field.path: field for field in fields(recipes.get("vsepp", "paper"))}
    assert said["similarity"].value == "cosine"
    others = said["similarity"].allowed.removeprefix("or ").split(", ")
    assert others == [kind for kind in registry.kinds("similarity") if kind != "cosine"]
    assert said["training.epochs"].value == "30" and said["training.epochs"].allowed == "takes an integer >= 1"
    assert said["training.precision"].allowed == "takes one of auto, float32, mixed_bfloat16"
    assert said["image.augment"].allowed == "takes bool"
    # Every path can be set.
    settable = [field for field in said.values() if field.value and field.path != "paper"]
    for field in settable:
        recipes.get("vsepp", "paper").with_overrides([f"{field.path}={field.value}"])


def test_a_tree_is_text_of_limited_width():
    text = tree(recipes.get("vsepp", "tuned"))
    assert "text.encoder = sequence-and-bag\n" in text and "text.encoder.sequence.units = 256\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert inspect.cleandoc(text) == text
