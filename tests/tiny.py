"""Recipes small enough for a test: the same parts with small sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vsemb.parts import Part, fields_of, rebuilt

#: Field of any part -> its value in a tiny recipe.
SIZES: dict[str, Any] = {
    "embedding_dim": 16,
    "units": 16,
    "min_count": 1,
    "epochs": 2,
    # Of an ensemble.
    "members": 2,
    "seed": 3,
    "precision": "float32",
}


def tiny(recipe: Any, *overrides: str) -> Any:
    """Returns a recipe that trains in seconds.

    Args:
        recipe: any recipe.
        *overrides: as for `Part.with_overrides`, applied last.
    """

    def smaller(part: Part) -> Part:
        names = fields_of(type(part))
        changes = {name: value for name, value in SIZES.items() if name in names}
        if changes.get("embedding_dim") and part.embedding_dim is None:
            del changes["embedding_dim"]
        if "vectors" in names:
            changes["dim"] = 16
        if part.family == "batches":
            changes["size"] = 8
        return replace(part, **changes)

    return rebuilt(recipe, smaller).with_overrides(list(overrides))


def settings(recipe: Any) -> list[str]:
    """Returns what `vsemb train --set` must be given to train `tiny(recipe)` in place of a recipe."""
    from vsemb.recipes.describe import fields

    both = zip(fields(recipe), fields(tiny(recipe)), strict=True)
    return [f"{small.path}={small.value}" for given, small in both if small.value != given.value]
