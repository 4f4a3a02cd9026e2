"""The dependency trees of a dataset's captions, which lie in its directory and belong to it.

    DATASET/parses/
        parses.json          what the rest is, with checksums; which dataset and parser it is of
        SPLIT.conllu.gz      all sentences of a split, in the order of its captions
        SPLIT.trees.gz       their words and heads alone, which is read twenty times as fast
        parser/              a copy of the parser, where it is known

The dataset's index, shards and fingerprint do not change, so its features and runs stay usable.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vsemb.data.annotations import CaptionAnnotation
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import reading, sha256_file
from vsemb.systems.trees.parsers import copy_parser, parser_files
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu

PARSER = "parser"
# A blank line separates trees, and no tree has one.
_BETWEEN = "\n\n"


class Parses(CaptionAnnotation):
    """The dependency trees of all captions of a dataset.

    Attributes:
        path: their directory.
        fingerprint: hex; equal for equal trees, tags and relations, whatever parser they came from.
        parser: what was said of the parser that made them, or None.
        count: the number of sentences.

    Example:

    ```python
    parses = Dataset.open("data/flickr8k").annotation("parses")
    tree = parses.trees(dataset.split("val"))[0]
    ```
    """

    kind: ClassVar[str] = "parses"
    option: ClassVar[str] = "--dependencies"
    unit: ClassVar[str] = "sentences"

    def __init__(self, dataset: Dataset, content: Mapping[str, Any]) -> None:
        super().__init__(dataset, content)
        self.parser: dict[str, Any] | None = content["parser"]
        self._parser_files: dict[str, str] | None = content["parser_files"]

    @classmethod
    def check(cls, content: Mapping[str, Any]) -> None:
        files = content["parser_files"]
        if not all(isinstance(item, (dict, type(None))) for item in (content["parser"], files)):
            raise TypeError("parser")
        for name, sha256 in (files or {}).items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(name)
            if not isinstance(sha256, str):
                raise TypeError("no text where a checksum should be")

    @classmethod
    def files(cls, split: str, record: Mapping[str, Any]) -> dict[str, str]:
        return {_conllu_name(split): record["conllu"], _trees_name(split): record["trees"]}

    @functools.cached_property
    def parser_folder(self) -> Path | None:
        """The parser on disk, where a copy of it was kept, else None.

        Raises:
            DataError: if a file of it is missing or damaged.
        """
        if self._parser_files is None:
            return None
        self.verify(self.path / PARSER, self._parser_files)
        return self.path / PARSER

    def trees(self, split: Split) -> list[Tree]:
        """Returns the tree of each caption of a split, with tags and relations.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        name = _conllu_name(split.name)
        return self.read(split, name, lambda file: [sentence.tree for sentence in read_conllu(file)])

    def texts(self, split: Split) -> list[str]:
        """Returns each caption of a split as a parsed text, see `trees.py`; much faster than `trees`.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        return self.read(split, _trees_name(split.name), lambda file: self.unpacked(file).split(_BETWEEN))


find = Parses.find


def _conllu_name(split: str) -> str:
    """Returns the name of the file with all sentences of a split."""
    return f"{split}.conllu.gz"


def _trees_name(split: str) -> str:
    """Returns the name of the file with the words and heads of a split alone."""
    return f"{split}.trees.gz"


def write_parses(
    dataset: Dataset,
    trees: Mapping[str, Sequence[Tree]],
    *,
    parser: Mapping[str, Any] | None = None,
    parser_folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Parses:
    """Writes the trees of a dataset's captions into its directory, whole or not at all.

    Where these parses are there already, nothing happens.

    Args:
        dataset: the dataset; its annotation `parses` is these from then on.
        trees: name of a split -> the tree of each caption in order, for all splits.
        parser: JSON-able, what is known of the parser that made them.
        parser_folder: the parser on disk, if it shall be kept with the parses for new sentences.
        overwrite: whether other parses are replaced.

    Returns:
        The parses, opened.

    Raises:
        DataError: if a tree is missing, too many or none, other parses are there and `overwrite` is false,
            the parser's folder holds what cannot be copied, or the file system refuses.

    Example:

    ```python
    trees = match_sentences(dataset, read_conllu("captions.conllu.gz"), report=print)
    parses = write_parses(dataset, trees)
    ```
    """
    Parses.check_given(dataset, trees)
    sources = None if parser_folder is None else parser_files(Path(parser_folder))
    described: dict[str, Any] = {
        "fingerprint": _fingerprint({name: trees[name] for name in dataset.splits}),
        "parser": None if parser is None else json.loads(json.dumps(dict(parser))),
    }
    with reading(str(parser_folder), "parser"):
        described["parser_files"] = sources and {name: sha256_file(file) for name, file in sources.items()}
    if not overwrite and (present := find(dataset)) is not None:
        if differing := _differing(present, described):
            raise DataError(f"{present.path} already holds parses with {differing}; replace them with --overwrite.")
        return present
    with Parses.writing(dataset, described, overwrite) as (folder, splits):
        for name in dataset.splits:
            splits[name] = _write_split(folder, dataset.split(name), trees[name])
        if sources is not None:
            copy_parser(sources, folder / PARSER)
            Parses.verify(folder / PARSER, described["parser_files"])
    return Parses.open(dataset)


def _write_split(folder: Path, split: Split, trees: Sequence[Tree]) -> dict[str, Any]:
    sentences = (
        # An id is one line in CoNLL-U; keys of images need not be.
        Sentence(" ".join(name.split()), text, tree)
        for name, text, tree in zip(split.caption_ids, split.captions, trees, strict=True)
    )
    write_conllu(sentences, folder / _conllu_name(split.name))
    content = _BETWEEN.join(tree.text for tree in trees).encode()
    (folder / _trees_name(split.name)).write_bytes(gzip.compress(content, 6, mtime=0))
    return {
        "sentences": len(trees),
        "conllu": sha256_file(folder / _conllu_name(split.name)),
        "trees": sha256_file(folder / _trees_name(split.name)),
    }


def _differing(present: Parses, described: Mapping[str, Any]) -> str:
    if present.fingerprint != described["fingerprint"]:
        return "other trees"
    if present.parser != described["parser"]:
        return "the same trees and another parser named"
    # Asked of the files themselves, so that a damaged copy is not taken for the same.
    if present.parser_folder is None:
        return "" if described["parser_files"] is None else "the same trees and no copy of a parser"
    stored = {name: sha256_file(file) for name, file in parser_files(present.parser_folder).items()}
    return "" if stored == described["parser_files"] else "the same trees and another copy of a parser"


def _fingerprint(trees: Mapping[str, Sequence[Tree]]) -> str:
    """Returns the SHA-256 of trees, with their tags and relations.

    Args:
        trees: name of a split -> its trees; the order of splits matters.
    """
    digest = hashlib.sha256()
    for name, some in trees.items():
        for tree in some:
            parts = [name, tree.words, tree.heads, tree.tags, tree.relations]
            digest.update(json.dumps(parts).encode() + b"\n")
    return digest.hexdigest()
