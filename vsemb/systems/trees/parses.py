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
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import replacing_directory, sha256_file, write_json
from vsemb.systems.trees.parse_files import (
    AGAIN,
    FOLDER,
    FORMAT,
    MANIFEST,
    PARSER,
    VERSION,
    conllu_name,
    copy_parser,
    fingerprint,
    parser_files,
    read_list,
    trees_name,
    verify,
)
from vsemb.systems.trees.parse_matching import match_sentences
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu

__all__ = ["Parses", "find", "match_sentences", "write_parses"]

# A blank line separates trees, and no tree has one.
_BETWEEN = "\n\n"


class Parses:
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

    def __init__(self, dataset: Dataset, content: dict[str, Any]) -> None:
        self.path = dataset.path / FOLDER
        self.fingerprint: str = content["fingerprint"]
        self.parser: dict[str, Any] | None = content["parser"]
        self.count = sum(record["sentences"] for record in content["splits"].values())
        self._dataset = dataset
        self._splits: dict[str, dict[str, Any]] = content["splits"]
        self._parser_files: dict[str, str] | None = content["parser_files"]
        self._trees: dict[str, list[Tree]] = {}
        self._texts: dict[str, list[str]] = {}

    @classmethod
    def open(cls, dataset: Dataset) -> Parses:
        """Opens the parses of a dataset; their files are verified, and read when they are needed.

        Raises:
            DataError: if there are none, or they are damaged, of another version or of another dataset.
        """
        return cls(dataset, read_list(dataset))

    @functools.cached_property
    def parser_folder(self) -> Path | None:
        """The parser on disk, where a copy of it was kept, else None.

        Raises:
            DataError: if a file of it is missing or damaged.
        """
        if self._parser_files is None:
            return None
        verify(self.path / PARSER, self._parser_files)
        return self.path / PARSER

    def trees(self, split: Split) -> list[Tree]:
        """Returns the tree of each caption of a split, with tags and relations.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        places = self._places(split)
        if split.name not in self._trees:
            file = self.path / conllu_name(split.name)
            found = [sentence.tree for sentence in read_conllu(file)]
            self._trees[split.name] = self._counted(split.name, found, file)
        trees = self._trees[split.name]
        return [trees[place] for place in places]

    def texts(self, split: Split) -> list[str]:
        """Returns each caption of a split as a parsed text, see `trees.py`; much faster than `trees`.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        places = self._places(split)
        if split.name not in self._texts:
            file = self.path / trees_name(split.name)
            try:
                found = gzip.decompress(file.read_bytes()).decode().split(_BETWEEN)
            except (OSError, EOFError, zlib.error, ValueError) as error:
                raise DataError(f"The parses {file} cannot be read: {error}. {AGAIN}") from error
            self._texts[split.name] = self._counted(split.name, found, file)
        texts = self._texts[split.name]
        return [texts[place] for place in places]

    def _places(self, split: Split) -> np.ndarray:
        if split.entries != self._dataset.split(split.name).entries:
            raise DataError(
                f"The split {split.name!r} is of another dataset than these parses, which are of {self._dataset.path}."
            )
        if split.caption_places is None:
            raise DataError(f"The texts of the split {split.name!r} are not its captions, and only those have parses.")
        return split.caption_places

    def _counted(self, name: str, found: list[Any], file: Path) -> list[Any]:
        if len(found) != self._splits[name]["sentences"]:
            raise DataError(f"{file} is damaged: it has {len(found)} sentences. {AGAIN}")
        return found

    def __repr__(self) -> str:
        return f"<Parses at {self.path} ({self.count} sentences)>"


def find(dataset: Dataset) -> Parses | None:
    """Opens the parses of a dataset; None where `vsemb annotate --dependencies` has not made them.

    Raises:
        DataError: if they are damaged or belong to another dataset.
    """
    return Parses.open(dataset) if (dataset.path / FOLDER).exists() else None


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
    _check_trees(dataset, trees)
    path = dataset.path / FOLDER
    sources = None if parser_folder is None else parser_files(Path(parser_folder))
    described: dict[str, Any] = {
        "dataset": dataset.fingerprint,
        "fingerprint": fingerprint({name: trees[name] for name in dataset.splits}),
        "parser": None if parser is None else json.loads(json.dumps(dict(parser))),
    }
    try:
        described["parser_files"] = sources and {name: sha256_file(file) for name, file in sources.items()}
    except OSError as error:
        raise DataError(f"The parser {parser_folder} cannot be read: {error.strerror or error}.") from error
    if path.exists() and not overwrite:
        present = Parses.open(dataset)
        if _differing(present, described):
            raise DataError(
                f"{path} already holds parses with {_differing(present, described)}; replace them with --overwrite."
            )
        return present
    with replacing_directory(path, overwrite) as folder:
        splits = {}
        for name in dataset.splits:
            splits[name] = _write_split(folder, dataset.split(name), trees[name])
        if sources is not None:
            copy_parser(sources, folder / PARSER)
            verify(folder / PARSER, described["parser_files"])
        write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, **described, "splits": splits})
    dataset.forget_annotation("parses")
    return Parses.open(dataset)


def _check_trees(dataset: Dataset, trees: Mapping[str, Sequence[Tree]]) -> None:
    if set(trees) != set(dataset.splits):
        raise DataError(
            f"Trees are given for the splits {', '.join(trees) or 'none'}; {dataset.path} has "
            f"{', '.join(dataset.splits)}, and all need theirs."
        )
    for name in dataset.splits:
        split = dataset.split(name)
        if len(trees[name]) != len(split.captions):
            raise DataError(
                f"{len(trees[name])} trees are given for {len(split.captions)} captions of the split "
                f"{name!r} of {dataset.path}."
            )
        for tree, caption in zip(trees[name], split.caption_ids, strict=True):
            tree.check(f"The parse of caption {caption!r} of the split {name!r}")


def _write_split(folder: Path, split: Split, trees: Sequence[Tree]) -> dict[str, Any]:
    sentences = (
        # An id is one line in CoNLL-U; keys of images need not be.
        Sentence(" ".join(name.split()), text, tree)
        for name, text, tree in zip(split.caption_ids, split.captions, trees, strict=True)
    )
    write_conllu(sentences, folder / conllu_name(split.name))
    content = _BETWEEN.join(tree.text for tree in trees).encode()
    (folder / trees_name(split.name)).write_bytes(gzip.compress(content, 6, mtime=0))
    return {
        "sentences": len(trees),
        "conllu": sha256_file(folder / conllu_name(split.name)),
        "trees": sha256_file(folder / trees_name(split.name)),
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
