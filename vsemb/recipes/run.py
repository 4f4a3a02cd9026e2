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
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np

from vsemb.data.features import FeatureStore
from vsemb.data.regions import RegionStore
from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.files import read_json, sha256_bytes, sha256_file
from vsemb.image.regions import RegionConfig
from vsemb.models import DualEncoder
from vsemb.recipes import build, texts
from vsemb.recipes.parsing import find_parses, parsed_texts, stored_parser
from vsemb.recipes.schema import Recipe
from vsemb.text.parsers import Parser, open_parser
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary

RECIPE, STATUS, VOCABULARY, METRICS = "recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl"
BEST, STATE, LOGS, BACKBONE = "checkpoints/best.weights.h5", "checkpoints/state.npz", "logs", "backbone"
BACKBONE_WEIGHTS, BACKBONE_CONFIG = "backbone.weights.h5", "backbone.json"
REGIONS_CONFIG = "regions.json"


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

    @property
    def sets(self) -> bool:
        """Whether an image is embedded as a set of regions and a text as the sequence of its words."""
        return build.of_sets(self.recipe)

    @property
    def feature_regions(self) -> RegionConfig | None:
        """How the regions of an image are found; None for a run that has none or cannot embed new images."""
        path = self.path / BACKBONE / REGIONS_CONFIG
        return RegionConfig.from_json(read_json(path, "regions")) if path.exists() else None

    def regions_of(self, dataset: Dataset) -> RegionStore:
        """Opens the regions of a dataset's images that the run reads.

        Raises:
            DataError: if the run reads none, or the dataset has none or others.
        """
        self.need_regions()
        store = self._features_of(dataset)
        assert isinstance(store, RegionStore)
        return store

    def need_regions(self) -> None:
        """Refuses a run whose images are no sets of regions.

        Raises:
            DataError: naming the recipe whose images are.
        """
        if not self.sets:
            raise DataError(
                f"{self.path} has no regions: its recipe {self.recipe.name!r} embeds an image as one vector. "
                "Train the recipe dvsa, which has: vsemb train dvsa"
            )

    def images_of(self, dataset: Dataset, split: Split) -> ImageSource:
        """Returns a split's images as the model wants them.

        Raises:
            DataError: if the dataset's features are not of the backbone the run was trained with.
        """
        store = None
        if self.recipe.image.backbone is None:
            store = self._features_of(dataset)
        return build.build_images(self.recipe, split, store)

    @property
    def reads_trees(self) -> bool:
        """Whether the run reads dependency trees in place of raw texts."""
        return self.recipe.text.tokenizer == "trees"

    @cached_property
    def parser(self) -> Parser | None:
        """What parses new sentences for a run that reads trees, or None."""
        return stored_parser(self.path) if self.reads_trees else None

    def use_parser(self, name: str | os.PathLike[str]) -> None:
        """Parses new sentences with another parser than the one of the training captions.

        Args:
            name: as for `vsemb.text.parsers.open_parser`.

        Raises:
            InvalidArgumentError: if the run reads no trees, or there is no such parser.
        """
        if not self.reads_trees:
            raise invalid_argument("parser", str(name), "none for a run that reads no trees")
        vars(self)["parser"] = open_parser(name)

    def read(self, raw: Sequence[str]) -> list[str]:
        """Returns raw texts as the run's tokenizer takes them: as they are, or parsed where it reads trees.

        Raises:
            DataError: if a sentence has to be parsed and no parser is known.
        """
        # The bytes of a command line that are no text come as halves of characters, which nothing encodes.
        raw = [text.encode(errors="replace").decode() for text in raw]
        if not self.reads_trees:
            return raw
        return parsed_texts(raw, self.knows, lambda: self.parser, self.path)

    def encode(self, raw: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenizes any number of raw texts, or of those that `texts_of` returns.

        Returns:
            ids and offsets, as `vsemb.text.tokenizers.Tokenizer.encode`.

        Raises:
            DataError: as `read`.
        """
        return self.tokenizer.encode(self.read(raw))

    def texts_of(self, split: Split) -> tuple[list[str], np.ndarray]:
        """Returns a split's texts as the model reads them: its captions, or the names of its classes.

        Returns:
            texts: m of them.
            rows: int64 (m,), the row of the image that each describes.

        Raises:
            DataError: for a class whose attributes the run does not know.
        """
        read = self._read_split(split)
        if self.recipe.text.tokenizer == "classes":
            unknown = sorted(set(read.captions) - set(self.vocabulary.words))
            if unknown:
                raise DataError(
                    f"{self.path} knows no attributes of the class {unknown[0]!r}"
                    f"{f' and {len(unknown) - 1} more' if len(unknown) > 1 else ''}."
                )
        return read.captions, read.caption_rows

    def captions_of(self, split: Split) -> list[str]:
        """Returns a split's captions as `encode` takes them: parsed where the run reads trees.

        Raises:
            DataError: if it reads trees and the dataset has none.
        """
        return self._read_split(split).captions if self.reads_trees else split.captions

    def shown_texts_of(self, split: Split) -> list[str]:
        """Returns what `texts_of` returns as people write it: captions unparsed."""
        return split.captions if self.reads_trees else self.texts_of(split)[0]

    def _read_split(self, split: Split) -> Split:
        parses = None if split.dataset is None else find_parses(self.recipe, split.dataset)
        return texts.read_texts(self.recipe, split, parses=parses)

    def knows(self, word: str) -> bool:
        """Whether the run can embed a word by itself."""
        if self.recipe.text.tokenizer in ("words", "trees"):
            return word.lower() in self._known_words
        return self.recipe.text.tokenizer != "classes"

    @cached_property
    def _known_words(self) -> frozenset[str]:
        return frozenset(word.lower() for word in self.vocabulary.words)

    def _regions_of(self, dataset: Dataset) -> RegionStore:
        # Checking the regions of a large dataset takes seconds.
        opened: dict[Path, RegionStore] = vars(self).setdefault("_opened_regions", {})
        if dataset.path not in opened:
            network = self.info.get("regions", "")
            opened[dataset.path] = RegionStore.find_alike(dataset, self.info["features"], network)
        return opened[dataset.path]

    def _features_of(self, dataset: Dataset) -> build.Store:
        wanted = self.info["features"]
        if self.feature_backbone is None and dataset.fingerprint != self.info["dataset"]:
            # Precomputed features name no backbone; their size is all that can be compared.
            wanted = None
        store: build.Store = self._regions_of(dataset) if self.sets else FeatureStore.find(dataset, wanted)
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
