"""Dependency trees of a dataset's captions, stored in the dataset's directory.

    DATASET/parses/
        parses.json          description with checksums, dataset and parser
        SPLIT.conllu.gz      all sentences of a split, in caption order
        SPLIT.trees.gz       words and heads only, twenty times as fast to read
        parser/              copy of the parser, if recorded

The dataset's index, shards and fingerprint do not change, so features and runs stay valid.
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
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError
from vsemb.files import reading, sha256_file
from vsemb.systems.trees.parsers import copy_parser, parser_files
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu

PARSER = "parser"
# A blank line separates trees; trees never contain one.
_BETWEEN = "\n\n"


class Parses(CaptionAnnotation):
    """The dependency trees of all captions of a dataset.

    Attributes:
        path: directory of the parses.
        fingerprint: hex; equal for equal trees, tags and relations, independent of the parser.
        parser: record of the parser, or None.
        count: number of sentences.

    Example:

    ```python
    parses = Dataset.open("data/flickr8k").annotation("parses")
    tree = parses.trees(dataset.split("val"))[0]
    ```
    """

    kind: ClassVar[str] = "parses"
    annotation: ClassVar[str] = "dependencies"
    unit: ClassVar[str] = "sentences"

    def __init__(self, dataset: StoredDataset, content: Mapping[str, Any]) -> None:
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
                raise TypeError(f"the checksum of {name} must be a string")

    @classmethod
    def files(cls, split: str, record: Mapping[str, Any]) -> dict[str, str]:
        return {_conllu_name(split): record["conllu"], _trees_name(split): record["trees"]}

    @functools.cached_property
    def parser_folder(self) -> Path | None:
        """Folder of the stored parser; None if it was not stored.

        Raises:
            DataError: if a file of the parser is missing or damaged.
        """
        if self._parser_files is None:
            return None
        self.verify(self.path / PARSER, self._parser_files)
        return self.path / PARSER

    def trees(self, split: Split) -> list[Tree]:
        """Return the tree of each caption of a split, with tags and relations.

        Args:
            split: split of this dataset, or a part of one (`Split.with_captions`).

        Raises:
            DataError: if the split is from another dataset or its texts are not captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        name = _conllu_name(split.name)
        return self.read(split, name, lambda file: [sentence.tree for sentence in read_conllu(file)])

    def texts(self, split: Split) -> list[str]:
        """Return each caption of a split as a parsed text, see `trees.py`; much faster than `trees`.

        Args:
            split: split of this dataset, or a part of one (`Split.with_captions`).

        Raises:
            DataError: if the split is from another dataset or its texts are not captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        return self.read(split, _trees_name(split.name), lambda file: self.unpacked(file).split(_BETWEEN))

    def labelled_texts(self, split: Split) -> list[str]:
        """Return each caption of a split as a parsed text with relations (`Tree.labelled_text`).

        Args:
            split: as for `texts`.

        Raises:
            DataError: as `texts`, and if a tree has no relations.
        """
        trees = self.trees(split)
        without = next((tree for tree in trees if not tree.relations), None)
        if without is not None:
            raise DataError(
                f"{self.path} must have the relation of every word to its head; got none for "
                f"{' '.join(without.words)[:80]!r}. Use a parser or a file with relations (column DEPREL)."
            )
        return [tree.labelled_text for tree in trees]


find = Parses.find


def _conllu_name(split: str) -> str:
    """Return the file name of a split's sentences."""
    return f"{split}.conllu.gz"


def _trees_name(split: str) -> str:
    """Return the file name of a split's words and heads."""
    return f"{split}.trees.gz"


def write_parses(
    dataset: StoredDataset,
    trees: Mapping[str, Sequence[Tree]],
    *,
    parser: Mapping[str, Any] | None = None,
    parser_folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Parses:
    """Write the trees of a dataset's captions into its directory, atomically.

    If the same parses exist, nothing is written.

    Args:
        dataset: the dataset, which gets the annotation `parses`.
        trees: split name -> tree of each caption in order, for all splits.
        parser: record of the parser, serializable as JSON; None if the parser is unknown.
        parser_folder: folder of the parser, to be copied for new sentences; None to copy nothing.
        overwrite: whether to replace existing parses.

    Returns:
        The parses, opened.

    Raises:
        DataError: if trees and captions differ in number, a tree is invalid, other parses exist and `overwrite` is
            false, the parser cannot be copied, or writing fails.

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
    present = None if overwrite else find(dataset)
    if present is not None:
        differing = _differing(present, described)
        if differing:
            raise DataError(f"{present.path} already holds parses with {differing}. Replace them with --overwrite.")
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
        # An id is one line in CoNLL-U; image keys may contain line breaks.
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
        return "the same trees and another parser"
    # Checksums of the files, since a stored copy may be damaged.
    if present.parser_folder is None:
        return "" if described["parser_files"] is None else "the same trees and no copy of a parser"
    stored = {name: sha256_file(file) for name, file in parser_files(present.parser_folder).items()}
    return "" if stored == described["parser_files"] else "the same trees and another copy of a parser"


def _fingerprint(trees: Mapping[str, Sequence[Tree]]) -> str:
    """Return the SHA-256 of trees, with their tags and relations.

    Args:
        trees: split name -> its trees; the order of splits matters.
    """
    digest = hashlib.sha256()
    for name, of_split in trees.items():
        for tree in of_split:
            parts = [name, tree.words, tree.heads, tree.tags, tree.relations]
            digest.update(json.dumps(parts).encode() + b"\n")
    return digest.hexdigest()
