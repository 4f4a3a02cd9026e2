"""Recipes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vsemb import registry
from vsemb.errors import unknown_name

if TYPE_CHECKING:
    from vsemb.recipes.schema import Recipe


def names() -> list[str]:
    """Return the names of all recipes, recipes of the base first.

    Example:

    >>> names()[:2]
    ['kiros2014', 'kiros2014-linear']
    """
    return list(registry.entries("recipes"))


def variants(name: str) -> dict[str, Recipe]:
    """Return the variants of a recipe; the first is the default.

    Args:
        name: one of `names()`, or the path of a Python file that defines `RECIPE`.

    Raises:
        InvalidArgumentError: for an unknown name, with the closest name as a suggestion.
        DataError: for a file without a recipe.
    """
    if name.endswith(".py"):
        return registry.recipes_of_file(name)
    references = registry.entries("recipes")
    if name not in references:
        raise unknown_name("recipe", name, references)
    return registry.load(references[name])


def get(name: str, variant: str | None = None) -> Recipe:
    """Return a recipe.

    Args:
        name: one of `names()`, or the path of a Python file that defines `RECIPE`.
        variant: a variant of the recipe; None for the first.

    Raises:
        InvalidArgumentError: for an unknown name or variant, with the closest name as a suggestion.
        DataError: for a file without a recipe.

    Example:

    >>> get("kiros2014").embedding_dim
    300
    """
    choices = variants(name)
    if variant is None:
        return next(iter(choices.values()))
    if variant not in choices:
        raise unknown_name("variant", variant, choices)
    return choices[variant]
