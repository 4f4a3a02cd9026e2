"""Which precision a training computes in: bfloat16 where the processor multiplies it faster."""

from __future__ import annotations

import dataclasses

from vsemb.errors import unknown_name
from vsemb.ops.processor import multiplies_bfloat16
from vsemb.recipes.schema import PRECISIONS, Recipe


def settled(recipe: Recipe) -> Recipe:
    """Returns the recipe to train by: with a precision in the place of `auto`.

    `auto` is `mixed_bfloat16` on processors that multiply bfloat16 by themselves, and `float32` on others.
    Weights are float32 in both. What is done with a run afterwards is computed in float32, on every machine,
    unless `vsemb export --precision` asks for another.

    Args:
        recipe: the recipe.

    Raises:
        InvalidArgumentError: for a precision that does not exist.
    """
    check_precision(recipe)
    precision = recipe.training.precision
    if precision == "auto":
        precision = "mixed_bfloat16" if multiplies_bfloat16() else "float32"
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, precision=precision))


def check_precision(recipe: Recipe) -> None:
    """Refuses a precision that does not exist.

    Raises:
        InvalidArgumentError: if it does not.
    """
    if recipe.training.precision not in PRECISIONS:
        raise unknown_name("training.precision", recipe.training.precision, PRECISIONS)
