"""The run directory: what training writes and everything after it reads.

recipe.json          the recipe, complete
run.json             dataset, features, versions, status, the selected epoch
vocabulary.txt       one token a line, the line number is the id
metrics.jsonl        one line an epoch
logs/                TensorBoard
checkpoints/best.weights.h5    selected on validation
checkpoints/state.npz          where training goes on after an interruption
backbone/            configuration and weights of the feature backbone, so that the run can embed
                     images without the dataset it was trained on
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np

from vsemb.data.features import FeatureStore
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, one_line
from vsemb.files import read_json, replacing_directory, sha256_bytes, sha256_file, write_json
from vsemb.models import DualEncoder
from vsemb.recipes import build, texts
from vsemb.recipes.schema import Recipe
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary

RECIPE, STATUS, VOCABULARY, METRICS = "recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl"
BEST, STATE, LOGS, BACKBONE = "checkpoints/best.weights.h5", "checkpoints/state.npz", "logs", "backbone"
BACKBONE_WEIGHTS, BACKBONE_CONFIG = "backbone.weights.h5", "backbone.json"


def read_recipe(path: Path) -> Recipe:
    """Returns the recipe of a run directory.

    Raises:
        DataError: if it is no run.
    """
    if not (path / RECIPE).exists():
        raise DataError(f"{path} is no run: it has no {RECIPE}. Make one with: vsemb train")
    try:
        return Recipe.from_json(read_json(path / RECIPE, "recipe"))
    except DataError as error:
        raise DataError(f"{path} cannot be opened. {error}") from error


@dataclass(frozen=True)
class StoredRun:
    """What the runs of all tasks have in common.

    Attributes:
        path: its directory.
        recipe: what was trained.
        info: `run.json`.
    """

    path: Path
    recipe: Recipe
    info: dict[str, Any]

    task: ClassVar[str]
    #: What `run.json` must have.
    fields: ClassVar[tuple[str, ...]] = ("dataset", "data", "vocabulary", "status")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Opens a run directory.

        Raises:
            DataError: if it is no run, one for another task, or has no selected weights yet.
        """
        path = Path(path)
        recipe = read_recipe(path)
        if recipe.task != cls.task:
            raise DataError(
                f"{path} is a run of the recipe {recipe.name!r}, which is for {recipe.task}; a run for "
                f"{cls.task} is needed here."
            )
        info = read_status(path, cls.fields)
        if not (path / BEST).exists():
            raise DataError(f"{path} has no selected weights yet; let `vsemb train` finish an epoch.")
        return cls(path, recipe, info)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The run's vocabulary, verified against `run.json`."""
        vocabulary = Vocabulary.load(self.path / VOCABULARY)
        if vocabulary.fingerprint != self.info["vocabulary"]:
            raise DataError(
                f"{self.path / VOCABULARY} is not the vocabulary that the run was trained with "
                f"({vocabulary.fingerprint[:12]}, not {self.info['vocabulary'][:12]}). Restore it."
            )
        return vocabulary

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        return texts.build_tokenizer(self.recipe, self.vocabulary)

    @cached_property
    def fingerprint(self) -> str:
        """Hex that changes with the selected weights, the recipe, the vocabulary and the features."""
        # The recipe as it was written: a later version of vsemb reads it with more fields than it had.
        files = [sha256_file(self.path / name) for name in (BEST, RECIPE)]
        parts = [*files, self.info["vocabulary"], self.info.get("features")]
        return sha256_bytes(json.dumps(parts).encode())

    def _load_best(self, model: keras.Model) -> None:
        """Loads the selected weights."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.load_weights(self.path / BEST)
        except (OSError, ValueError) as error:
            reason = one_line(error, 120)
            raise DataError(
                f"{self.path / BEST} does not fit the run's {RECIPE} ({reason} …). One of the two was "
                "changed; restore it."
            ) from error

    @property
    def data_path(self) -> Path:
        """Where the dataset of the training was."""
        path = Path(self.info["data"])
        if not path.exists():
            raise DataError(f"The dataset of {self.path} is no longer at {path}. Name it with --data.")
        return path


@dataclass(frozen=True)
class Run(StoredRun):
    """A trained dual encoder.

    Example:

        run = Run.open("runs/vsepp")
        embeddings = run.model.encode_texts(run.tokenizer(["a dog on a beach"]))
    """

    task: ClassVar[str] = "retrieval"
    fields: ClassVar[tuple[str, ...]] = (*StoredRun.fields, "features", "feature_dim")

    @cached_property
    def model(self) -> DualEncoder:
        """The model with the selected weights."""
        model = build.build_model(
            _without_downloads(self.recipe),
            len(self.vocabulary),
            self.info["feature_dim"],
            self.info.get("attribute_dim"),
        )
        self._load_best(model)
        return model

    @property
    def feature_backbone(self) -> tuple[dict[str, Any], Path] | None:
        """Configuration and weights of the backbone behind the features, or None.

        None both for a run from pixels, whose backbone is part of the model, and for one trained on
        precomputed features, which cannot embed new images.
        """
        folder = self.path / BACKBONE
        if not (folder / BACKBONE_CONFIG).exists():
            return None
        return read_json(folder / BACKBONE_CONFIG, "backbone"), folder / BACKBONE_WEIGHTS

    def images_of(self, dataset: Dataset, split: Split) -> ImageSource:
        """Returns a split's images as the model wants them.

        Raises:
            DataError: if the dataset's features are not of the backbone the run was trained with.
        """
        store = None
        if self.recipe.image.backbone is None:
            store = self._features_of(dataset)
        return build.build_images(self.recipe, split, store)

    def texts_of(self, split: Split) -> tuple[list[str], np.ndarray]:
        """Returns a split's texts as the model reads them: its captions, or the names of its classes.

        Returns:
            texts: m of them.
            rows: int64 (m,), the row of the image that each describes.

        Raises:
            DataError: for a class whose attributes the run does not know.
        """
        read = texts.read_texts(self.recipe, split)
        if self.recipe.text.tokenizer == "classes":
            unknown = sorted(set(read.captions) - set(self.vocabulary.words))
            if unknown:
                raise DataError(
                    f"{self.path} knows no attributes of the class {unknown[0]!r}"
                    f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}."
                )
        return read.captions, read.caption_rows

    def _features_of(self, dataset: Dataset) -> FeatureStore:
        wanted = self.info["features"]
        if self.feature_backbone is None:
            # Precomputed features name no backbone; their size is all that can be compared.
            store = FeatureStore.find(
                dataset, wanted if dataset.fingerprint == self.info["dataset"] else None
            )
        else:
            store = FeatureStore.find(dataset, wanted)
        if store.dim != self.info["feature_dim"]:
            raise DataError(
                f"The features of {dataset.path} have {store.dim} entries, the run was trained on "
                f"{self.info['feature_dim']}."
            )
        return store


def read_status(path: Path, needed: Collection[str]) -> dict[str, Any]:
    """Returns the `run.json` of a run directory.

    Raises:
        DataError: if it lacks a field of `needed`.
    """
    info = read_json(path / STATUS, "run status")
    if lacking := set(needed) - set(info if isinstance(info, dict) else ()):
        raise DataError(f"{path / STATUS} is not the status of a run: it lacks {', '.join(sorted(lacking))}.")
    return info


def _without_downloads(recipe: Recipe) -> Recipe:
    """The recipe with the backbone's weights random: the selected weights replace them anyway."""
    return recipe.with_overrides(["image.weights=null"])


def prepare_run(
    recipe: Recipe, dataset: Dataset, out: Path, vocabulary: Vocabulary, store: FeatureStore | None
) -> dict[str, Any]:
    """Makes or re-enters the run directory.

    Returns:
        The contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
    info: dict[str, Any] = {
        "dataset": dataset.fingerprint,
        "dataset_name": dataset.name,
        "data": str(dataset.path.resolve()),
        "features": None if store is None else store.fingerprint,
        "feature_dim": None if store is None else store.dim,
    }
    attributes = texts.class_attributes(recipe, dataset)
    if attributes is not None:
        info |= {"attributes": attributes.fingerprint, "attribute_dim": len(attributes.names)}
    classes = dataset.split("train").class_names
    if all(classes):
        # What is recognised later is compared with these, on whatever dataset.
        info["classes"] = sorted({name for name in classes if name})
    return enter_run(recipe, info, out, vocabulary, store)


def check_out(out: Path) -> None:
    """Refuses a directory that holds something else than a run.

    Raises:
        DataError: if it does.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} exists and is no run. Choose another --out.")


def enter_run(
    recipe: Recipe, info: dict[str, Any], out: Path, vocabulary: Vocabulary, store: FeatureStore | None = None
) -> dict[str, Any]:
    """Makes or re-enters a run directory, whatever its task.

    Args:
        recipe: the recipe.
        info: what `run.json` says about the data; fingerprints in it must not change.
        out: the directory.
        vocabulary: that of the training texts.
        store: features whose backbone is kept with the run.

    Returns:
        The contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
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
        if store is not None and store.backbone is not None and store.weights_path is not None:
            _copy_backbone(store, folder / BACKBONE)
        write_json(folder / STATUS, info)
        write_json(folder / RECIPE, recipe.to_json())
    return info


def _copy_backbone(store: FeatureStore, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    assert store.weights_path is not None and store.backbone is not None
    target = folder / BACKBONE_WEIGHTS
    target.unlink(missing_ok=True)
    try:
        os.link(store.weights_path, target)
    except OSError:
        shutil.copyfile(store.weights_path, target)
    write_json(folder / BACKBONE_CONFIG, store.backbone.to_json())


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
    names = [name for name in ("dataset", "features", "vocabulary", "attributes") if name in info]
    status = read_status(out, (*names, "status"))
    for name in names:
        if status[name] != info[name]:
            raise DataError(
                f"{out} was trained on another {name} ({str(status[name])[:12]} there, "
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
