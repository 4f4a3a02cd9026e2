"""`vsemb.train` and `vsemb.export`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vsemb import recipes
from vsemb.console import without_tracing_advice
from vsemb.data.store import Dataset
from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, unknown_name
from vsemb.parts import Part
from vsemb.recipes.describe import fields
from vsemb.recipes.schema import Recipe
from vsemb.runs.fine_tune import configured
from vsemb.runs.run import Run
from vsemb.runs.serve import export_run
from vsemb.runs.train import train as train_recipe
from vsemb.searching.storage import read_index

# Keras' name of a field -> its path.
_KERAS = {"batch_size": "batches.size"}


def train(
    recipe: str | Recipe,
    data: Dataset | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    variant: str | None = None,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    fine_tune: str | os.PathLike[str] | Literal[True] | None = None,
    inputs: Mapping[str, Run] | None = None,
    strategy: str = "none",
    **values: Any,
) -> Run:
    """Train a recipe on a dataset, or resume an interrupted training with the same call.

    Args:
        recipe: a name that `vsemb recipes` lists, a Python file that defines RECIPE, or a `vsemb.Recipe`.
        data: a `vsemb.Dataset`, or the directory of one.
        out: the run directory.
        variant: variant of a named recipe; default: the first.
        backbone: network of the image features, such as `MobileNetV2`; missing features are computed first. Default:
            use the features of the dataset.
        weights: weights of the backbone, also with `fine_tune`: `imagenet`, `random`, a weights file, or a run;
            default: `imagenet`.
        fine_tune: network to train from pixels, in place of features: a name, which starts from ImageNet weights
            (`SmallConvNet`: from random ones), `hub:PRESET`, the directory of a run that was trained from pixels, or
            True for the network of the features. Values named `image_…` are then fields of this network's tower.
        inputs: other runs that the recipe needs, by name, such as `{"encoder": vsemb.Run.open("runs/kiros")}`.
        strategy: `none`, or `mirrored` for all devices of this machine.
        **values: fields of the recipe. A name is the end of the field's path, with `_` in place of dots, and must be
            unique: `epochs=5`, `learning_rate=1e-3`, `batch_size=64`, `text_encoder="transformer"`,
            `encoder_dropout=0.1`, or `**{"text.encoder.dropout": 0.1}`. `vsemb recipes NAME` lists all fields.

    Returns:
        The run, with the weights of its best epoch on the validation split.

    Raises:
        InvalidArgumentError: for an unknown recipe or network, or a name that matches no field or several.
        DataError: if data, features and recipe do not match, or if `out` contains something else.

    Example:

        data = vsemb.Dataset.from_pairs(files, captions)
        run = vsemb.train("best", data, "runs/mine", backbone="MobileNetV2", epochs=5)
        tuned = vsemb.train("vsepp", data, "runs/tuned", fine_tune="MobileNetV2", learning_rate=1e-5)
    """
    if isinstance(recipe, str):
        recipe = recipes.get(recipe, variant)
    elif variant is not None:
        raise invalid_argument("variant", variant, "given with the name of a recipe")
    given = {"backbone": backbone, "weights": weights}
    recipe, opened = configured(recipe, data, values, with_values, fine_tune, given)
    weights = weights if fine_tune is None else None
    if isinstance(opened, Dataset) and (lacking := sorted({"train", "val"} - {*opened.splits})):
        raise DataError(
            f"{opened.path} must have the splits train and val; it has no {' and no '.join(lacking)}. Give "
            "more images, or name the split of each image."
        )
    with without_tracing_advice():
        return train_recipe(recipe, opened, out, backbone=backbone, weights=weights, inputs=inputs, strategy=strategy)


def with_values(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """Return a recipe with fields replaced.

    Args:
        recipe: the recipe.
        values: name -> value. A name is the end of a field's path, with `_` in place of dots, or the whole path.

    Raises:
        InvalidArgumentError: for a name that fits no field or several, and for values that do not fit.

    Example:

    >>> with_values(recipes.get("vsepp"), {"epochs": 5, "learning_rate": 0.001}).training.epochs
    5
    """
    # Replace parts first, since the kind of a part decides which fields exist.
    chosen = {name: value for name, value in values.items() if isinstance(value, str) and _is_part(recipe, name)}
    for some in (chosen, {name: value for name, value in values.items() if name not in chosen}):
        recipe = recipe.with_overrides([f"{_path(recipe, name)}={_text(name, some[name])}" for name in some])
    return recipe


def _is_part(recipe: Recipe, name: str) -> bool:
    paths = _paths(recipe, name)
    found: Any = recipe
    for step in paths[0].split(".") if len(paths) == 1 else ():
        found = getattr(found, step)
    return len(paths) == 1 and isinstance(found, Part)


def _paths(recipe: Recipe, name: str) -> list[str]:
    """Return the paths that end with a name; only the name itself if it is a whole path."""
    wanted = _KERAS.get(name, name)
    steps = {field.path: field.path.split(".") for field in fields(recipe)}
    ends = {path: {"_".join(each[start:]) for start in range(len(each))} for path, each in steps.items()}
    return [wanted] if wanted in steps else [path for path in ends if wanted in ends[path]]


def _path(recipe: Recipe, name: str) -> str:
    paths = _paths(recipe, name)
    if len(paths) > 1:
        longer = ", ".join(path.replace(".", "_") for path in paths)
        raise InvalidArgumentError(f"`{name}` must name one recipe field; it fits several. Write one of {longer}.")
    if not paths:
        ends = sorted({field.path.split(".")[-1] for field in fields(recipe)})
        raise unknown_name("recipe field", name, ends, f"`vsemb recipes {recipe.name}` lists all fields.")
    return paths[0]


def _text(name: str, value: Any) -> str:
    """Return a value as text for `Part.with_overrides`."""
    if isinstance(value, Part):
        fix = f"Pass its kind, {value.kind!r}, and its fields; or a recipe with it: dataclasses.replace(recipe, …)"
        raise invalid_argument(name, value, "a number, a string, a list or None", fix)
    # `default` also converts numbers of NumPy, and paths.
    return json.dumps(value, default=lambda each: each.item() if hasattr(each, "item") else os.fspath(each))


def export(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    version: int | None = None,
    index: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a run as a SavedModel for TensorFlow Serving: strings and image bytes in, embeddings out.

    Args:
        run: a `vsemb.Run`, or its directory.
        out: directory of the model; each export adds a version to it: `out/1`, `out/2` and so on.
        version: version number; default: the next.
        index: index of the run from `vsemb index`, for search inside the model.

    Returns:
        The directory of the version. Before it is published, it is loaded and compared with the run.

    Raises:
        DataError: if the version exists, or the reloaded model differs from the run.

    Example:

        path = vsemb.export(run, "savedmodels/mine")
        model = vsemb.load(path)
    """
    return export_run(_opened(run), out, version, index=None if index is None else read_index(index))


def _opened(run: Run | str | os.PathLike[str]) -> Run:
    if not isinstance(run, Run | str | os.PathLike):
        raise invalid_argument("run", run, "a vsemb.Run or its directory", "vsemb.train returns one.")
    return run if isinstance(run, Run) else Run.open(run)
