"""Texts as dependency trees: those of a dataset's captions from its parses, those of new sentences from a parser."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, write_json
from vsemb.systems.trees.parsers import Parser, ParserInfo, copy_parser, open_parser, parser_files
from vsemb.systems.trees.parses import Parses
from vsemb.systems.trees.signature import TreeInput
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer, parsed_texts, tree_vocabulary
from vsemb.systems.trees.trees import Tree
from vsemb.text.tokenizers import LearnedVocabulary, Tokenizer, WordReader
from vsemb.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vsemb.runs.run import Run

#: In a run's directory: which parser it is and, where it is no installed package, the parser itself.
PARSER, _INFO, _PIPELINE = "parser", "parser.json", "pipeline"


def find_parses(dataset: Dataset) -> Parses:
    """Opens the dependency trees of a dataset's captions.

    Raises:
        DataError: if there are none, or they are damaged.
    """
    found: Parses | None = dataset.annotation("parses")
    if found is None:
        raise DataError(
            f"The recipe reads dependency trees and {dataset.path} has none. Make them with: vsemb annotate "
            f"{dataset.path} --dependencies --model en_core_web_sm, or --conllu FILE for those of another parser."
        )
    return found


def keep_parser(parses: Parses, run: Path) -> None:
    """Keeps the parser of a dataset's captions in a run's directory, where one is known.

    Args:
        parses: the dataset's parses.
        run: the run's directory, while it is made.
    """
    try:
        ParserInfo.from_json(parses.parser)
    except DataError:  # What others wrote of their parser need not be as ours.
        return
    folder = run / PARSER
    folder.mkdir()
    if parses.parser_folder is not None:
        copy_parser(parser_files(parses.parser_folder), folder / _PIPELINE)
    write_json(folder / _INFO, parses.parser)


def stored_parser(run: Path) -> Parser | None:
    """Opens the parser that a run's directory names.

    Args:
        run: the run's directory.

    Returns:
        None where the parses of the training captions came from a file and no parser was named, or one that
        is none of spaCy's.

    Raises:
        VsembError: if it is named and cannot be opened.
    """
    info = _stored_info(run)
    if info is None or not info.library.startswith("spaCy "):
        return None
    pipeline = run / PARSER / _PIPELINE
    return open_parser(pipeline if pipeline.is_dir() else info.name)


def _stored_info(run: Path) -> ParserInfo | None:
    path = run / PARSER / _INFO
    return ParserInfo.from_json(read_json(path, "parser")) if path.exists() else None


class TreeReader(WordReader):
    r"""Raw texts as a run on dependency trees reads them: parsed, by the parser of its training captions.

    Texts are read up to `vsemb.text.normalize.MAX_BYTES`. One that is parsed already stays as it is, and so does one
    without a word. A word that the vocabulary has was a word of a tree, and is a tree by itself.

    Args:
        vocabulary: the run's vocabulary.
        run: the run directory.

    Example:

    >>> TreeReader(Vocabulary(["dogs"]), Path("runs/tree"))(["dogs", ""])
    ['dogs\t0', '']
    """

    def __init__(self, vocabulary: Vocabulary, run: Path) -> None:
        super().__init__(vocabulary)
        self._run = run

    @functools.cached_property
    def parser(self) -> Parser | None:
        """What parses new sentences, or None."""
        return stored_parser(self._run)

    @property
    def parser_name(self) -> str:
        """What the run's own parser is called, with its version; "" where there is none."""
        return str(_stored_info(self._run) or "")

    @property
    def limits(self) -> str | None:
        if self.parser is not None:
            return None
        return "The run knows no parser: only single words can be asked for. Name one with --parser."

    def __call__(self, raw: Sequence[str]) -> list[str]:
        """Returns a parsed text for each, see `vsemb.systems.trees.trees`.

        Raises:
            DataError: for a sentence where there is no parser; there, letters and digits alone are one word.
        """
        return parsed_texts(super().__call__(raw), self._parse)

    def _parse(self, sentences: list[str]) -> list[str]:
        words = {text for text in sentences if self.knows(text) or (self.parser is None and text.isalnum())}
        others = [text for text in sentences if text not in words]
        parsed = {text: Tree((text,), (0,)).text for text in words}
        if others and self.parser is None:
            raise DataError(
                f"{self._run} reads dependency trees and knows no parser for {others[0][:80]!r}, since none of "
                "spaCy's was named with its captions. Name one with --parser, e.g. --parser en_core_web_sm."
            )
        if others and self.parser is not None:
            parsed |= zip(others, (tree.text for tree in self.parser(others)), strict=True)
        return [parsed[text] for text in sentences]


def use_parser(run: Run, name: str | os.PathLike[str]) -> None:
    """Lets a run parse new sentences with another parser than the one of its training captions.

    Args:
        run: the run.
        name: as for `vsemb.systems.trees.parsers.open_parser`.

    Raises:
        InvalidArgumentError: if the run reads no trees, or there is no such parser.
    """
    if not isinstance(run.reader, TreeReader):
        raise invalid_argument("parser", str(name), "none for a run that reads no trees")
    run.reader.parser = open_parser(name)


@dataclass(frozen=True)
class Trees(LearnedVocabulary, kind="trees"):
    """Words of dependency trees and the places of their heads; captions need `vsemb annotate --dependencies`."""

    produces: ClassVar[str] = "trees"
    whole_words: ClassVar[bool] = True
    tokenizer: ClassVar[type[Tokenizer]] = TreeTokenizer
    token_shape: ClassVar[tuple[int, ...]] = TreeTokenizer.token_shape
    made_of: ClassVar[Mapping[str, str]] = {"parses": "other parses"}

    def select(self, split: Split) -> Split:
        if split.dataset is None:
            raise DataError(f"The split {split.name!r} is of no dataset, and only those have parses.")
        texts: list[list[str]] = [[] for _ in range(len(split))]
        trees = find_parses(split.dataset).texts(split)
        for row, tree in zip(split.caption_rows.tolist(), trees, strict=True):
            texts[row].append(tree)
        return split.with_captions(texts)

    def describe(self, dataset: Dataset) -> dict[str, Any]:
        return {"parses": find_parses(dataset).fingerprint}

    def keep(self, dataset: Dataset, folder: Path) -> None:
        keep_parser(find_parses(dataset), folder)

    def learn(self, texts: Iterable[str], dataset: Dataset | None = None) -> Vocabulary:
        if dataset is None:
            raise invalid_argument("text.tokenizer", self.kind, "another where sentences have no parses")
        return tree_vocabulary(texts, self.min_count, self.vocabulary_size)

    def text_input(self, tokenizer: Any, reader: Any) -> Any:
        return TreeInput(tokenizer, reader, reader.parser_name)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TreeReader:
        return TreeReader(vocabulary, run)
