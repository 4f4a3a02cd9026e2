"""The start of a training: set the fields of its recipe, open its data, and choose its image network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from vsemb.console import say
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, VsembError, invalid_argument
from vsemb.parts import Part, Typed
from vsemb.recipes.schema import Recipe
from vsemb.runs.fine_tune import with_backbone

# Keras' name of a field -> its path.
_KERAS = {"batch_size": "batches.size"}


def start(
    recipe: Recipe,
    data: Any,
    values: Mapping[str, Any],
    *,
    fine_tune: str | os.PathLike[str] | Literal[True] | None = None,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    others: Iterable[str] = (),
    suit: bool = False,
) -> tuple[Recipe, Any]:
    """Return the recipe that a training trains, and its opened data.

    Args:
        recipe: the recipe.
        data: the data, or its path.
        values: name of a field -> value, see `with_values`.
        fine_tune: network to train from pixels, see `vsemb.runs.fine_tune.with_backbone`; True for the network of the
            data's features; None for the recipe's own image tower.
        backbone: network of cached features; it must be None with `fine_tune`.
        weights: weights that fine-tuning starts from; without `fine_tune`, they are of cached features.
        others: names of other arguments, for the error about an unknown name in `values`.
        suit: whether the recipe may be changed to suit the size of the data, see `Recipe.suited_to`.

    Raises:
        VsembError: for arguments that do not match each other, values that do not fit, or data that cannot be opened.
    """
    if fine_tune is None:
        changed = with_values(recipe, values, others)
        data = _opened(changed, data)
        return _suited(recipe, changed, data, values) if suit else changed, data
    if backbone is not None:
        raise invalid_argument("backbone", backbone, "omitted with `fine_tune`, which reads no cached features")
    # The other fields belong to the tower that replaces this one.
    first = {name: value for name, value in values.items() if name.endswith("fingerprint")}
    recipe = with_values(recipe, first, others)
    data = _opened(recipe, data)
    recipe = with_backbone(recipe, data, None if fine_tune is True else os.fspath(fine_tune))
    if weights is not None:
        chosen = None if weights == "random" else os.fspath(weights)
        recipe = recipe.with_pixels(replace(recipe.image_tower, weights=chosen))
    values = {name: value for name, value in values.items() if name not in first}
    changed = with_values(recipe, values, others)
    return _suited(recipe, changed, data, values) if suit else changed, data


def _suited(recipe: Recipe, changed: Recipe, data: Any, values: Mapping[str, Any]) -> Recipe:
    """Return a recipe as it suits the data, with values that go before; `changed`, without that, if they do not fit."""
    changes, line = changed.suited_to(data)
    try:
        chosen = with_values(recipe.with_overrides(changes), values)
    except VsembError:
        return changed
    if chosen != changed:
        say(line)
    return chosen


def _opened(recipe: Recipe, data: Any) -> Any:
    if isinstance(data, str | os.PathLike):
        data = recipe.open_data(data)
    if not hasattr(data, "fingerprint"):
        raise invalid_argument("data", data, "a dataset or other data of the recipe's task, or its path")
    if isinstance(data, StoredDataset):
        lacking = [split for split in recipe.splits if split not in data.splits]
        if lacking:
            fix = "Give more images, or name the split of each image."
            raise DataError(f"{data.path} must have the split {' and the split '.join(lacking)}; it does not. {fix}")
    return data


def with_values(recipe: Recipe, values: Mapping[str, Any], others: Iterable[str] = ()) -> Recipe:
    """Return a recipe with fields replaced.

    Args:
        recipe: the recipe.
        values: name -> value. A name is the end of a field's path, with `_` or `.` between its steps, or the whole
            path.
        others: further names, for the error about an unknown name.

    Raises:
        InvalidArgumentError: for a name that fits no field or several, and for values that do not fit.

    Example:

    >>> from vsemb import recipes
    >>> with_values(recipes.get("vsepp"), {"epochs": 5, "learning_rate": 0.001}).training.epochs
    5
    """
    texts = typed(values)
    return recipe.with_overrides([f"{_KERAS.get(name, name)}={texts[name]}" for name in texts], [*_KERAS, *others])


def typed(values: Mapping[str, Any]) -> dict[str, Typed]:
    """Return values of fields as the text that a command line has for them."""
    texts = {}
    for name, value in values.items():
        texts[name] = value if isinstance(value, Typed) else Typed(_json(name, value))
    return texts


def _json(name: str, value: Any) -> str:
    if isinstance(value, Part):
        fix = f"Pass its kind, {value.kind!r}, and its fields; or a recipe with it: dataclasses.replace(recipe, …)"
        raise invalid_argument(name, value, "a number, a string, a list or None", fix)
    try:
        # `default` also converts numbers of NumPy, and paths.
        return json.dumps(value, default=lambda each: each.item() if hasattr(each, "item") else os.fspath(each))
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_argument(name, value, "a number, a string, a list or None") from error
