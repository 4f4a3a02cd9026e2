"""Texts as dependency trees: captions from the parses of their dataset, new sentences from a parser."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, write_json
from vsemb.runs.run import Run, replacing_kept
from vsemb.systems.trees.parsers import Parser, ParserInfo, copy_parser, open_parser, parser_files
from vsemb.systems.trees.parses import Parses
from vsemb.systems.trees.signature import LabelledTreeInput, TreeInput
from vsemb.systems.trees.tree_tokenizer import LabelledTreeTokenizer, TreeTokenizer, parsed_texts, tree_vocabulary
from vsemb.systems.trees.trees import Tree
from vsemb.text.tokenizers import LearnedVocabulary, TextReader, Tokenizer, WordReader
from vsemb.text.vocabulary import Vocabulary

#: In a run directory: a description of the parser and, unless it is an installed package, the parser itself.
PARSER, _INFO, _PIPELINE = "parser", "parser.json", "pipeline"


def find_parses(dataset: StoredDataset) -> Parses:
    """Open the dependency trees of a dataset's captions.

    Raises:
        DataError: if the dataset has not been parsed, or its parses are damaged.
    """
    parses: Parses | None = dataset.annotation("parses")
    if parses is None:
        raise DataError(
            f"Dataset {dataset.path} must have dependency trees for this recipe. Make them with: vsemb annotate "
            f"{dataset.path} dependencies --model en_core_web_sm, or --conllu FILE for trees of another parser."
        )
    return parses


def keep_parser(parses: Parses, run: Path) -> None:
    """Copy the parser of a dataset's captions to a run directory, if it is recorded.

    Args:
        parses: the dataset's parses.
        run: the run directory under construction.
    """
    try:
        ParserInfo.from_json(parses.parser)
    except DataError:  # Descriptions by other programs may have other fields.
        return
    folder = run / PARSER
    folder.mkdir()
    _write_parser(folder, parses.parser, parses.parser_folder)


def _write_parser(folder: Path, described: Mapping[str, Any] | None, pipeline: Path | None) -> None:
    if pipeline is not None:
        copy_parser(parser_files(pipeline), folder / _PIPELINE)
    write_json(folder / _INFO, described)


def stored_parser(run: Path) -> Parser | None:
    """Open the parser recorded in a run directory.

    Args:
        run: the run directory.

    Returns:
        The parser. None if the training parses came from a file without a parser, or from another library than spaCy.

    Raises:
        VsembError: if the recorded parser cannot be opened.
    """
    info = _stored_info(run)
    if info is None or not info.library.startswith("spaCy "):
        return None
    pipeline = run / PARSER / _PIPELINE
    if pipeline.is_dir():
        return open_parser(pipeline)
    if not info.name.isidentifier():
        raise DataError(
            f"The parser of {run} must be the name of an installed spaCy pipeline, or lie in {pipeline}; got "
            f"{info.name!r}. Give it one: vsemb parser {run} en_core_web_sm"
        )
    return open_parser(info.name)


def _stored_info(run: Path) -> ParserInfo | None:
    path = run / PARSER / _INFO
    return ParserInfo.from_json(read_json(path, "parser")) if path.exists() else None


class TreeReader(WordReader):
    r"""Parse raw texts for a run on dependency trees, with the parser of its training captions.

    Texts are read up to `vsemb.text.normalize.MAX_BYTES`. Parsed texts and texts without a word stay unchanged. A text
    that is one word of the vocabulary is a tree of one word.

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
        """The parser of new sentences, or None."""
        return stored_parser(self._run)

    @property
    def parser_name(self) -> str:
        """Name and version of the run's own parser; "" if not recorded."""
        return str(_stored_info(self._run) or "")

    @property
    def limits(self) -> str | None:
        if self.parser is not None:
            return None
        return (
            f"Without a parser, this run reads single words only. Give it one: vsemb parser {self._run} en_core_web_sm"
        )

    def __call__(self, raw: Sequence[str]) -> list[str]:
        """Return one parsed text per raw text, see `vsemb.systems.trees.trees`.

        Raises:
            DataError: for a text that needs a parser, if the run has none. A text of letters and digits only needs
                none: it is read as one word.
        """
        return parsed_texts(super().__call__(raw), self._parse)

    def text_of(self, tree: Tree) -> str:
        """Return a tree as the parsed text that the tokenizer reads."""
        return tree.text

    def _parse(self, sentences: list[str]) -> list[str]:
        words = {text for text in sentences if self.knows(text) or (self.parser is None and text.isalnum())}
        others = [text for text in sentences if text not in words]
        parsed = {text: self.text_of(Tree((text,), (0,), relations=("root",))) for text in words}
        if others and self.parser is None:
            raise DataError(
                f"A run on dependency trees needs a parser for {others[0][:80]!r}; {self._run} has none recorded. "
                f"Give it one: vsemb parser {self._run} en_core_web_sm"
            )
        if others and self.parser is not None:
            parsed |= zip(others, map(self.text_of, self.parser(others)), strict=True)
        return [parsed[text] for text in sentences]


class LabelledTreeReader(TreeReader):
    r"""Parse raw texts to parsed texts with relations, as `TreeReader` does.

    Example:

    >>> LabelledTreeReader(Vocabulary(["dogs"]), Path("runs/edges"))(["dogs"])
    ['dogs\t0\troot']
    """

    def text_of(self, tree: Tree) -> str:
        return tree.labelled_text


def use_parser(run: Run, name: str | os.PathLike[str], *, report: Callable[[str], None] | None = None) -> ParserInfo:
    """Replace the parser in a run directory, which parses new sentences.

    Args:
        run: the run.
        name: see `vsemb.systems.trees.parsers.open_parser`.
        report: see there.

    Returns:
        The identity of the parser.

    Raises:
        InvalidArgumentError: if the run does not read trees, or the parser does not exist.
    """
    if not isinstance(run.reader, TreeReader):
        raise invalid_argument("run", str(run.path), "a run on dependency trees, as of the recipe tree-twin")
    parser = open_parser(name, report=report)
    with replacing_kept(run.path, PARSER) as folder:
        _write_parser(folder, parser.info.to_json(), parser.folder)
    run.reader.parser = parser
    return parser.info


@dataclass(frozen=True)
class Trees(LearnedVocabulary, kind="trees"):
    """Words of dependency trees and the numbers of their heads; needs `vsemb annotate DATA dependencies`."""

    produces: ClassVar[str] = "trees"
    whole_words: ClassVar[bool] = True
    tokenizer: ClassVar[type[Tokenizer]] = TreeTokenizer
    token_shape: ClassVar[tuple[int, ...]] = TreeTokenizer.token_shape
    made_of: ClassVar[Mapping[str, str]] = {"parses": "other parses"}

    def select(self, split: Split) -> Split:
        if split.dataset is None:
            raise DataError(
                f"Split {split.name!r} must belong to a dataset on disk, which has parses; got a split in memory."
            )
        texts: list[list[str]] = [[] for _ in range(len(split))]
        trees = self.texts(find_parses(split.dataset), split)
        for row, tree in zip(split.caption_rows.tolist(), trees, strict=True):
            texts[row].append(tree)
        return split.with_captions(texts)

    def texts(self, parses: Parses, split: Split) -> list[str]:
        """Return the parsed text of each caption of a split."""
        return parses.texts(split)

    def describe(self, dataset: StoredDataset) -> dict[str, Any]:
        return {"parses": find_parses(dataset).fingerprint}

    def keep(self, dataset: StoredDataset, folder: Path) -> None:
        keep_parser(find_parses(dataset), folder)

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        if dataset is None:
            raise invalid_argument(
                "text.tokenizer", self.kind, "another tokenizer, since these sentences are not parsed"
            )
        return tree_vocabulary(texts, self.min_count, self.vocabulary_size)

    def text_input(self, tokenizer: Tokenizer, reader: TextReader) -> TreeInput:
        assert isinstance(reader, TreeReader)
        return TreeInput(tokenizer, reader, reader.parser_name)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TreeReader:
        return TreeReader(vocabulary, run)


@dataclass(frozen=True)
class LabelledTrees(Trees, kind="labelled-trees"):
    """Words of dependency trees, the numbers of their heads and the relations to them, for encoders of relations."""

    produces: ClassVar[str] = "labelled-trees"
    tokenizer: ClassVar[type[Tokenizer]] = LabelledTreeTokenizer
    token_shape: ClassVar[tuple[int, ...]] = LabelledTreeTokenizer.token_shape

    def texts(self, parses: Parses, split: Split) -> list[str]:
        return parses.labelled_texts(split)

    def text_input(self, tokenizer: Tokenizer, reader: TextReader) -> LabelledTreeInput:
        assert isinstance(reader, LabelledTreeReader)
        return LabelledTreeInput(tokenizer, reader, reader.parser_name)

    def reader(self, vocabulary: Vocabulary, run: Path) -> LabelledTreeReader:
        return LabelledTreeReader(vocabulary, run)
