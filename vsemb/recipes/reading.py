"""Refusing fields of a recipe that its task does not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vsemb.errors import invalid_argument
from vsemb.recipes.schema import Recipe


def check_read(recipe: Recipe, read: tuple[str, ...]) -> None:
    """Refuses a field that the recipe's task does not read and that is not at its default.

    Args:
        recipe: the recipe.
        read: paths of the fields that the task reads, or how they begin, e.g. `("name", "text.")`.

    Raises:
        InvalidArgumentError: naming the field.

    Example:

    >>> check_read(Recipe(name="mine", embedding_dim=300), ("name", "embedding_dim"))
    """
    default = dict(_leaves(Recipe(name=recipe.name).to_json()))
    for path, value in _leaves(recipe.to_json()):
        if value != default[path] and not path.startswith(read):
            fix = f"The task {recipe.task} does not read it."
            raise invalid_argument(path, value, f"{default[path]!r}, the default", fix)


def _leaves(plain: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in plain.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
