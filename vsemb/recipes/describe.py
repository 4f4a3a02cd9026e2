"""What a recipe's file says about it: equations, and where it deviates from its paper."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from vsemb import recipes
from vsemb.recipes.schema import Recipe


def module_of(name: str) -> ModuleType:
    """Returns the module that a recipe is written in.

    Args:
        name: one of `RECIPES`.

    Raises:
        InvalidArgumentError: for an unknown name.

    Example:

    >>> module_of("kiros2014-linear").__name__
    'vsemb.recipes.kiros2014'
    """
    recipes.get(name)
    variants = recipes.RECIPES[name]
    modules = [module for path, module in sys.modules.items() if path.startswith(f"{recipes.__name__}.")]
    return next(module for module in modules if _holds(vars(module).values(), variants))


def _holds(values: Iterable[Any], variants: dict[str, Recipe]) -> bool:
    """Whether `variants` are among the values, or in a dictionary of families of recipes there."""
    values = list(values)
    families = [value for value in values if isinstance(value, dict)]
    return any(item is variants for item in [*values, *(v for family in families for v in family.values())])


def description(name: str) -> str:
    """Returns the docstring of a recipe's module: its equation table and every deviation."""
    return inspect.getdoc(module_of(name)) or ""
