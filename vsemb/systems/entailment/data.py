"""Labelled sentence pairs, streamed from the files of SNLI and SICK or from any table.

A pass over the lines finds the words, one turns them into ids, and these are all that stays in memory:
60 MB for the 570,000 pairs of SNLI.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsemb.data.batches import pad_ids
from vsemb.errors import DataError, unknown_name
from vsemb.files import sha256_bytes, sha256_file
from vsemb.systems.entailment.files import (
    EXPECTED,
    SPLITS,
    find_files,
    label,
    read_rows,
    sentence,
    split_name,
)
from vsemb.text.tokenizers import Tokenizer

_CHUNK = 4096


class SentencePair(NamedTuple):
    """A pair as it is read; `label` is a number of `files.CLASSES`, None without a gold label."""

    split: str
    premise: str
    hypothesis: str
    label: int | None


@dataclass(frozen=True, eq=False)
class Sentences:
    """Tokenized sentences, one behind the other.

    Attributes:
        ids: (tokens,) int32.
        offsets: (sentences + 1,) int64; sentence i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """(sentences,) int64, in words."""
        return np.diff(self.offsets)

    def padded(self, rows: np.ndarray) -> np.ndarray:
        """Gathers sentences, padded with 0 on the right: (rows, steps) int32."""
        return pad_ids(self.ids, self.offsets, rows)


@dataclass(frozen=True, eq=False)
class EntailmentSplit:
    """The pairs of a split as token ids.

    Attributes:
        name: of the split.
        premises: the first sentences.
        hypotheses: the second ones.
        classes: (pairs,) int8, numbers of `files.CLASSES`.
        dropped: pairs left out since they have no gold label.
    """

    name: str
    premises: Sentences
    hypotheses: Sentences
    classes: np.ndarray
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def labels(self) -> np.ndarray:
        """(pairs,) int32, 1 where the premise entails the hypothesis; neutral and contradiction are 0.

        Merged as in Vendrov et al. 2016, section 5.2.
        """
        return (self.classes == 0).astype(np.int32)


@dataclass(frozen=True)
class EntailmentData:
    """Labelled sentence pairs on disk.

    Where they name no splits, they are split 80 / 10 / 10 by premise, see `premise_split`.

    Attributes:
        path: a folder or a file.
        files: split -> its file; or "" -> the one file with everything.
        split_seed: decides the splits where the source names none.

    Example:

        data = EntailmentData.open("data/snli_1.0")
        vocabulary = Vocabulary.from_captions(data.texts("train"))
        splits = data.encode(WordTokenizer(vocabulary))
    """

    path: Path
    files: dict[str, Path]
    split_seed: int = 0

    @classmethod
    def open(cls, path: str | os.PathLike[str], split_seed: int = 0) -> EntailmentData:
        """Opens a folder with a file for each split, or a file.

        Raises:
            DataError: if there are no sentence pairs, or the first line is malformed.
        """
        data = cls(Path(path), find_files(Path(path)), split_seed)
        for file in data.files.values():
            if next(read_rows(file), None) is None:
                raise DataError(f"{file} has no sentence pairs. Expected: {EXPECTED}.")
        return data

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the files and how they are split."""
        files = {split: sha256_file(file) for split, file in self.files.items()}
        return sha256_bytes(json.dumps([files, self.split_seed if self.grouped else None]).encode())

    @cached_property
    def grouped(self) -> bool:
        """Whether the source names no splits, so that premises decide."""
        return "" in self.files and "split" not in next(read_rows(self.files[""]))[1]

    @property
    def protocol(self) -> str:
        """How the pairs come to their splits, in words."""
        names = ", ".join(file.name for file in self.files.values())
        if self.grouped:
            return (
                f"{names} names no splits: 80/10/10 by premise (SHA-256, seed {self.split_seed}), no premise "
                "is in two splits"
            )
        return f"the splits of {names}"

    def pairs(self, splits: Collection[str] = SPLITS, desc: str | None = None) -> Iterator[SentencePair]:
        """Reads the pairs of some splits in the order of the files, those without a gold label too.

        Args:
            splits: the splits wanted.
            desc: what the progress bar says; None for no bar.

        Raises:
            DataError: naming file and line, if a line is malformed.
        """
        for name, file in self.files.items():
            if name and name not in splits:
                continue
            for where, row in read_rows(file, desc):
                premise, hypothesis = sentence(where, row, "premise"), sentence(where, row, "hypothesis")
                split = name
                if self.grouped and "split" in row:
                    raise DataError(f"{where}: this row names its split and the first does not. Name all or none.")
                if self.grouped:
                    split = premise_split(premise, self.split_seed)
                elif not name:
                    split = split_name(where, row)
                if split in splits:
                    yield SentencePair(split, premise, hypothesis, label(where, row))

    def texts(self, split: str) -> Iterator[str]:
        """Reads the sentences of a split's labelled pairs, for a vocabulary.

        Raises:
            DataError: naming file and line, if a line is malformed; or if there are none.
        """
        found = False
        for pair in self.pairs([split], desc="words"):
            if pair.label is not None:
                found = True
                yield pair.premise
                yield pair.hypothesis
        if not found:
            raise self._lacks(split)

    def encode(self, tokenizer: Tokenizer, splits: Collection[str] = SPLITS) -> dict[str, EntailmentSplit]:
        """Turns pairs into token ids, a few thousand at a time.

        Args:
            tokenizer: the model's tokenizer.
            splits: the splits wanted.

        Returns:
            split -> its pairs.

        Raises:
            InvalidArgumentError: for an unknown split.
            DataError: naming file and line, if a line is malformed; or if a split has no labelled pair.
        """
        for name in splits:
            if name not in SPLITS:
                raise unknown_name("split", name, SPLITS)
        writers = {name: _SplitWriter(name, tokenizer) for name in splits}
        for pair in self.pairs(splits, desc="token ids"):
            writers[pair.split].add(pair)
        encoded = {name: writer.finish() for name, writer in writers.items()}
        for name, split in encoded.items():
            if not len(split):
                raise self._lacks(name)
        return encoded

    def _lacks(self, split: str) -> DataError:
        return DataError(
            f"{self.path} has no labelled pair in the split {split!r}, which is needed. Expected: {EXPECTED}."
        )


def premise_split(premise: str, seed: int = 0) -> str:
    """Returns train (80 %), val (10 %) or test (10 %), decided by the premise alone.

    All pairs of a premise fall together, or a model would meet test premises in training. Upper case and
    the amount of white space make no other premise.

    Args:
        premise: the sentence.
        seed: another one makes another split.

    Example:

    >>> premise_split("A dog runs.") == premise_split("a dog  runs.")
    True
    """
    text = f"{seed}\n{' '.join(premise.lower().split())}"
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
    return "train" if tenth < 8 else "val" if tenth == 8 else "test"


class _SplitWriter:
    """Collects the pairs of a split; as strings only until there are enough for the tokenizer."""

    def __init__(self, name: str, tokenizer: Tokenizer) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self._waiting: list[SentencePair] = []
        # Begun with nothing, so that an empty split has arrays too.
        self._ids = [[np.zeros(0, np.int32)], [np.zeros(0, np.int32)]]
        self._lengths = [[np.zeros(1, np.int64)], [np.zeros(1, np.int64)]]
        self._classes = [np.zeros(0, np.int8)]
        self._dropped = 0

    def add(self, pair: SentencePair) -> None:
        if pair.label is None:
            self._dropped += 1
            return
        self._waiting.append(pair)
        if len(self._waiting) == _CHUNK:
            self._flush()

    def _flush(self) -> None:
        for side, texts in enumerate(
            ([pair.premise for pair in self._waiting], [pair.hypothesis for pair in self._waiting])
        ):
            ids, offsets = self.tokenizer.encode(texts)
            self._ids[side].append(ids)
            self._lengths[side].append(np.diff(offsets))
        self._classes.append(np.array([pair.label for pair in self._waiting], np.int8))
        self._waiting = []

    def finish(self) -> EntailmentSplit:
        self._flush()
        premises, hypotheses = (
            Sentences(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))
            for ids, lengths in zip(self._ids, self._lengths, strict=True)
        )
        return EntailmentSplit(self.name, premises, hypotheses, np.concatenate(self._classes), self._dropped)
