"""Recipes by name. A recipe is a frozen tree of typed parts; a file per paper lists equations and deviations."""

from __future__ import annotations

from vsemb.recipes.catalogue import get, names, variants
from vsemb.recipes.describe import explain

__all__ = ["explain", "get", "names", "variants"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
