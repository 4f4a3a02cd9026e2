"""Where a run keeps its presets, and how its recipe finds them there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from vsemb.presets import PREFIX, is_preset
from vsemb.recipes.schema import Recipe

#: Folder in the run directory, and the folders in it.
PRESETS = "presets"
IMAGE, TEXT = "image", "text"


def with_kept_presets(recipe: Recipe, path: Path) -> Recipe:
    """Returns a run's recipe with the copies that the run keeps in place of its presets' names.

    Args:
        recipe: as it was trained.
        path: the run directory.

    Example:

    >>> with_kept_presets(Recipe(name="mine"), Path("runs/mine")) == Recipe(name="mine")
    True
    """
    image, text = (path / PRESETS / part for part in (IMAGE, TEXT))
    if is_preset(recipe.image.backbone) and image.is_dir():
        recipe = dataclasses.replace(
            recipe, image=dataclasses.replace(recipe.image, backbone=f"{PREFIX}{image.resolve()}")
        )
    if is_preset(recipe.text.tokenizer) and text.is_dir():
        kept = f"{PREFIX}{text.resolve()}"
        encoder = kept if is_preset(recipe.text.encoder) else recipe.text.encoder
        recipe = dataclasses.replace(
            recipe, text=dataclasses.replace(recipe.text, tokenizer=kept, encoder=encoder)
        )
    return recipe
