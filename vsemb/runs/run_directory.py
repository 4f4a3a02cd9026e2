"""Making and re-entering the run directory that `vsemb.runs.stored_run` describes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.files import replacing_directory, write_json
from vsemb.recipes.schema import Recipe
from vsemb.runs import texts
from vsemb.runs.presets import keep_presets
from vsemb.runs.stored_run import (
    BACKBONE,
    BACKBONE_CONFIG,
    BACKBONE_WEIGHTS,
    RECIPE,
    REGIONS_CONFIG,
    STATUS,
    VOCABULARY,
    read_recipe,
    read_status,
)
from vsemb.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vsemb.systems.regions.regions import RegionStore
    from vsemb.systems.trees.parses import Parses


# What a run was made of, by its name in `run.json`, and what another one is called.
_MADE_OF = {
    "dataset": "another dataset",
    "features": "other features",
    "vocabulary": "another vocabulary",
    "attributes": "other attributes",
    "parses": "other parses",
    "encoder": "another encoder",
    "tags": "other parts of speech",
    "alignment": "snippets of another alignment",
}


def prepare_run(
    recipe: Recipe,
    dataset: Dataset,
    out: Path,
    vocabulary: Vocabulary,
    store: FeatureStore | RegionStore | None,
    *,
    alignment: str | None = None,
) -> dict[str, Any]:
    """Makes or re-enters the run directory.

    Args:
        recipe: the recipe.
        dataset: what it is trained on.
        out: the directory.
        vocabulary: that of the training texts.
        store: features, of images or regions.
        alignment: fingerprint of the run that cuts captions into snippets; None where none does, or where
            whatever cut those of a run that is there already is right.

    Returns:
        The contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
    from vsemb.systems.regions.regions import RegionStore
    from vsemb.systems.trees.parse_texts import find_parses

    info: dict[str, Any] = {
        "dataset": dataset.fingerprint,
        "dataset_name": dataset.name,
        "data": str(dataset.path.resolve()),
        "features": None if store is None else store.fingerprint,
        "feature_dim": None if store is None else store.dim,
    }
    if isinstance(store, RegionStore):
        info["regions"] = store.network
    if alignment is not None:
        info["alignment"] = alignment
    attributes = texts.class_attributes(recipe, dataset)
    if attributes is not None:
        info |= {"attributes": attributes.fingerprint, "attribute_dim": len(attributes.names)}
    parses = find_parses(recipe, dataset)
    if parses is not None:
        info["parses"] = parses.fingerprint
    classes = dataset.split("train").class_names
    if all(classes):
        # What is recognised later is compared with these, on whatever dataset.
        info["classes"] = sorted({name for name in classes if name})
    return enter_run(recipe, info, out, vocabulary, store, parses)


def check_out(out: Path) -> None:
    """Refuses a directory that holds something else than a run.

    Raises:
        DataError: if it does.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is no run. Choose another --out.")


def enter_run(
    recipe: Recipe,
    info: dict[str, Any],
    out: Path,
    vocabulary: Vocabulary,
    store: FeatureStore | RegionStore | None = None,
    parses: Parses | None = None,
) -> dict[str, Any]:
    """Makes or re-enters a run directory, whatever its task.

    Args:
        recipe: the recipe.
        info: what `run.json` says about the data; fingerprints in it must not change.
        out: the directory.
        vocabulary: that of the training texts.
        store: features, of images or regions, whose backbone is kept with the run.
        parses: dependency trees whose parser is kept with the run.

    Returns:
        The contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
    from vsemb.systems.trees.parse_texts import keep_parser

    info = info | {
        "vocabulary": vocabulary.fingerprint,
        "vocabulary_size": len(vocabulary),
        "versions": _versions(),
        "status": "running",
    }
    if (out / RECIPE).exists():
        return _check_same(recipe, info, out)
    check_out(out)
    # Whole or not at all: half of it would be no run, and refused when the same command comes again.
    with replacing_directory(out) as folder:
        (folder / "checkpoints").mkdir()
        vocabulary.save(folder / VOCABULARY)
        keep_presets(recipe, folder)
        if store is not None and store.backbone is not None and store.weights_path is not None:
            _copy_backbone(store, folder / BACKBONE)
        if parses is not None:
            keep_parser(parses, folder)
        write_json(folder / STATUS, info)
        write_json(folder / RECIPE, recipe.to_json())
    return info


def _copy_backbone(store: FeatureStore | RegionStore, folder: Path) -> None:
    from vsemb.systems.regions.regions import RegionStore

    folder.mkdir(exist_ok=True)
    assert store.weights_path is not None and store.backbone is not None
    target = folder / BACKBONE_WEIGHTS
    target.unlink(missing_ok=True)
    try:
        os.link(store.weights_path, target)
    except OSError:
        shutil.copyfile(store.weights_path, target)
    write_json(folder / BACKBONE_CONFIG, store.backbone.to_json())
    if isinstance(store, RegionStore):
        write_json(folder / REGIONS_CONFIG, store.regions.to_json())
        if store.classifier_path is not None:
            shutil.copyfile(store.classifier_path, folder / CLASSIFIER_NAME)


def _check_same(recipe: Recipe, info: dict[str, Any], out: Path) -> dict[str, Any]:
    # Fields that an earlier version did not have are as they are by default.
    stored = read_recipe(out).to_json()
    differences = _differences(stored, recipe.to_json())
    if differences:
        path, old, new = differences[0]
        raise DataError(
            f"{out} holds a run of another recipe: {path} is {old!r} there and {new!r} now"
            f"{f' ({len(differences) - 1} more differ)' if len(differences) > 1 else ''}. "
            "Choose another --out, or remove it."
        )
    names = [name for name in _MADE_OF if name in info]
    status = read_status(out, (*names, "status"))
    for name in names:
        if status[name] != info[name]:
            raise DataError(
                f"{out} was trained on {_MADE_OF[name]} ({str(status[name])[:12]} there, "
                f"{str(info[name])[:12]} now). Choose another --out."
            )
    return status


def _differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in sorted({*old, *new}):
            found += _differences(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
        return found
    return [] if old == new else [(path, old, new)]


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("vsemb", "tensorflow", "keras", "numpy")}
