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
        if changes.get("embedding_dim") and getattr(part, "embedding_dim") is None:
            del changes["embedding_dim"]
        if "vectors" in names:
            changes["dim"] = 16
        if part.family == "batches":
            changes["size"] = 8
        return replace(part, **changes)

    return rebuilt(recipe, smaller).with_overrides(list(overrides))
