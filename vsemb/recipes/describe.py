"""What a recipe's file says about it: equations, and where it deviates from its paper."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from vsemb import recipes


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
    return next(module for module in modules if any(value is variants for value in vars(module).values()))


def description(name: str) -> str:
    """Returns the docstring of a recipe's module: its equation table and every deviation."""
    return inspect.getdoc(module_of(name)) or ""
