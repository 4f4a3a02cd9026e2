"""The run directory: what training writes and everything after it reads.

recipe.json          the recipe, complete
run.json             dataset, features, versions, status, the selected epoch
vocabulary.txt       one token a line, the line number is the id
metrics.jsonl        one line an epoch
logs/                TensorBoard
checkpoints/best.weights.h5    selected on validation
checkpoints/state.npz          where training goes on after an interruption
backbone/            configuration and weights of the feature backbone, so that the run can embed
                     images without the dataset it was trained on; regions.json, where images are
                     sets of regions: how these are found, and classifier.weights.h5
                     where a classifier ranks them
parser/              where the run reads dependency trees: the parser of new sentences
presets/             where its towers are presets of keras-hub: what was read of them, without weights
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import keras

from vsemb.errors import DataError, one_line, unknown_name
from vsemb.files import read_json, sha256_bytes, sha256_file
from vsemb.recipes.schema import PRECISIONS, Recipe
from vsemb.runs import texts
from vsemb.runs.stored_presets import with_kept_presets
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary

RECIPE, STATUS, VOCABULARY, METRICS = "recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl"
BEST, STATE, LOGS, BACKBONE = "checkpoints/best.weights.h5", "checkpoints/state.npz", "logs", "backbone"
BACKBONE_WEIGHTS, BACKBONE_CONFIG = "backbone.weights.h5", "backbone.json"
REGIONS_CONFIG = "regions.json"
# `auto` is a question that training asks; what is done with a run has one answer on all machines.
_COMPUTED = tuple(name for name in PRECISIONS if name != "auto")


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
        return cls(path, cls.as_opened(recipe, path), info)

    @staticmethod
    def as_opened(recipe: Recipe, path: Path) -> Recipe:
        """Returns the recipe as runs are opened with it: presets are read from where the run keeps them."""
        return with_kept_presets(recipe, path)

    def computed_in(self, precision: str) -> Self:
        """Returns the run with a model that computes in another precision, from the same weights.

        The text tower does, and what stands behind an image network; the network itself stays in float32. In
        bfloat16 large batches of texts take less time where the processor multiplies it by itself, single
        texts more, and embeddings have two digits.

        Args:
            precision: `float32` or `mixed_bfloat16`.

        Raises:
            InvalidArgumentError: for another.
        """
        if precision not in _COMPUTED:
            raise unknown_name("precision", precision, _COMPUTED)
        if self.recipe.training.dtype == precision:
            return self
        training = replace(self.recipe.training, precision=precision)
        other = replace(self, recipe=replace(self.recipe, training=training))
        # All else that has been read or chosen, a parser among it, is as it was.
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - vars(other) - {"model"}})
        return other

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
        if self.info["data"] is None:
            raise DataError(f"{self.path} was trained on no dataset of yours. Name one with --data.")
        path = Path(self.info["data"])
        if not path.exists():
            raise DataError(f"The dataset of {self.path} is no longer at {path}. Name it with --data.")
        return path


def read_status(path: Path, needed: Collection[str]) -> dict[str, Any]:
    """Returns the `run.json` of a run directory.

    Raises:
        DataError: if it lacks a field of `needed`.
    """
    info = read_json(path / STATUS, "run status")
    if lacking := set(needed) - set(info if isinstance(info, dict) else ()):
        raise DataError(f"{path / STATUS} is not the status of a run: it lacks {', '.join(sorted(lacking))}.")
    return info
