"""Runs of the retrieval task: a trained dual encoder and what it reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from vsemb.data.store import Split
from vsemb.errors import DataError, invalid_argument
from vsemb.models import DualEncoder
from vsemb.runs import build, texts
from vsemb.runs.image_run import ImageRun
from vsemb.runs.presets import without_downloads

if TYPE_CHECKING:
    from vsemb.systems.trees.parsers import Parser


@dataclass(frozen=True)
class Run(ImageRun):
    """A trained dual encoder.

    Example:

        run = Run.open("runs/vsepp")
        embeddings = run.model.encode_texts(run.tokenizer(["a dog on a beach"]))
    """

    task: ClassVar[str] = "retrieval"

    @cached_property
    def model(self) -> DualEncoder:
        """The model with the selected weights."""
        model = build.build_model(
            without_downloads(self.recipe),
            len(self.vocabulary),
            self.info["feature_dim"],
            self.info.get("attribute_dim"),
        )
        self._load_best(model)
        return model

    @property
    def sets(self) -> bool:
        """Whether an image is embedded as a set of regions and a text as the sequence of its words."""
        return build.of_sets(self.recipe)

    @property
    def reads_trees(self) -> bool:
        """Whether the run reads dependency trees in place of raw texts."""
        return self.recipe.text.tokenizer == "trees"

    @cached_property
    def parser(self) -> Parser | None:
        """What parses new sentences for a run that reads trees, or None."""
        from vsemb.systems.trees.parse_texts import stored_parser

        return stored_parser(self.path) if self.reads_trees else None

    def use_parser(self, name: str | os.PathLike[str]) -> None:
        """Parses new sentences with another parser than the one of the training captions.

        Args:
            name: as for `vsemb.systems.trees.parsers.open_parser`.

        Raises:
            InvalidArgumentError: if the run reads no trees, or there is no such parser.
        """
        from vsemb.systems.trees.parsers import open_parser

        if not self.reads_trees:
            raise invalid_argument("parser", str(name), "none for a run that reads no trees")
        vars(self)["parser"] = open_parser(name)

    def read(self, raw: Sequence[str]) -> list[str]:
        """Returns raw texts as the run's tokenizer takes them: as they are, or parsed where it reads trees.

        Raises:
            DataError: if a sentence has to be parsed and no parser is known.
        """
        # The bytes of a command line that are no text come as halves of characters, which nothing encodes.
        from vsemb.systems.trees.parse_texts import parsed_texts

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
        from vsemb.systems.trees.parse_texts import find_parses

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
