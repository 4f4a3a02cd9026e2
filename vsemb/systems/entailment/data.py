"""Labelled sentence pairs, streamed from the files of SNLI and SICK or from any table, and their batches.

A pass over the lines finds the words, one turns them into ids, and these are all that stays in memory:
60 MB for the 570,000 pairs of SNLI.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from vsemb.data.batches import BatchSource, pad_ids
from vsemb.data.readers.hash_splits import split_of_digest
from vsemb.data.readers.table import read_rows
from vsemb.errors import DataError, unknown_name
from vsemb.files import sha256_bytes, sha256_file
from vsemb.parts import Count, Part
from vsemb.text.tokenizers import Tokenizer

#: The classes; a pair's label is its place here.
CLASSES = ("entailment", "neutral", "contradiction")

#: Our columns -> the names, in lower case, that are understood: plain ones, SNLI's and SICK's.
COLUMNS = {
    "premise": ("premise", "sentence1", "sentence_a"),
    "hypothesis": ("hypothesis", "sentence2", "sentence_b"),
    "label": ("label", "gold_label", "entailment_label", "entailment_judgment"),
    "split": ("split", "semeval_set"),
}
SPLITS = ("train", "val", "test")
EXPECTED = (
    "a folder with snli_1.0_train, _dev and _test (.jsonl, .txt or .tsv), a SICK.txt, or a .jsonl or "
    "tab-separated file with premise, hypothesis and label"
)

_LABELS = {name: number for number, name in enumerate(CLASSES)} | {"0": 0, "1": 1, "2": 2}
# SNLI's mark of a pair on which the annotators did not agree, and what it becomes where labels are numbers.
_NO_LABEL = ("-", "-1")
_SPLIT_NAMES = {name: name for name in SPLITS} | dict.fromkeys(("dev", "valid", "validation", "trial"), "val")
# Where a split is there in several formats, as in SNLI's archive, the first of these is read.
_SUFFIXES = (".jsonl", ".tsv", ".txt")

Row = Mapping[str, Any]
_CHUNK = 4096


def find_files(path: Path) -> dict[str, Path]:
    """Finds the files of a source.

    Args:
        path: a folder or a file.

    Returns:
        split -> its file; or "" -> the one file with everything.

    Raises:
        DataError: if there are none, or it is not clear which are meant.
    """
    if not path.exists():
        raise DataError(f"No sentence pairs at {path}: there is no such file or folder.")
    if not path.is_dir():
        if path.suffix.lower() not in _SUFFIXES:
            raise DataError(f"{path} is no file of sentence pairs. Expected: {EXPECTED}.")
        return {"": path}
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES and file.is_file()]
    tables = [file for file in files if not re.match(r"\.|readme", file.name.lower())]
    found: dict[str, Path] = {}
    for file in sorted(tables, key=lambda file: _SUFFIXES.index(file.suffix.lower())):
        # As in snli_1.0_dev.jsonl and SICK_trial.txt.
        named = {_SPLIT_NAMES[word] for word in re.split(r"[\W_]+", file.stem.lower()) if word in _SPLIT_NAMES}
        if len(named) != 1:
            continue
        (split,) = named
        other = found.setdefault(split, file)
        if other != file and other.suffix.lower() == file.suffix.lower():
            raise DataError(f"{path} holds two files of the split {split!r}: {other.name}, {file.name}.")
    if found:
        return {split: found[split] for split in SPLITS if split in found}
    if len(tables) == 1:
        return {"": tables[0]}
    raise DataError(f"{path} holds no sentence pairs, or several files of them. Expected: {EXPECTED}.")


class SentencePair(NamedTuple):
    """A pair as it is read; `label` is a number of `CLASSES`, None without a gold label."""

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

    @classmethod
    def joined(cls, parts: Sequence[Sentences]) -> Sentences:
        """Puts sentences one behind the other."""
        lengths = [np.zeros(1, np.int64), *(part.lengths for part in parts)]
        return cls(np.concatenate([part.ids for part in parts]), np.cumsum(np.concatenate(lengths)))

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
        classes: (pairs,) int8, numbers of `CLASSES`.
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
            if next(pair_rows(file), None) is None:
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
        return "" in self.files and "split" not in next(pair_rows(self.files[""]))[1]

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
            for where, row in pair_rows(file, desc):
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
        pairs = self.pairs(splits, desc="token ids")
        parts: dict[str, list[EntailmentSplit]] = {name: [] for name in splits}
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            for name in {pair.split for pair in chunk}:
                parts[name].append(_tokenized(name, [pair for pair in chunk if pair.split == name], tokenizer))
        encoded = {}
        for name, found in parts.items():
            if not any(map(len, found)):
                raise self._lacks(name)
            encoded[name] = EntailmentSplit(
                name,
                Sentences.joined([part.premises for part in found]),
                Sentences.joined([part.hypotheses for part in found]),
                np.concatenate([part.classes for part in found]),
                sum(part.dropped for part in found),
            )
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
    return split_of_digest(hashlib.sha256(text.encode()).digest())


def pair_rows(file: Path, desc: str | None = None) -> Iterator[tuple[str, Row]]:
    """Reads the rows of a file of sentence pairs, see `vsemb.data.readers.table.read_rows`."""
    return read_rows(file, COLUMNS, ("premise", "hypothesis", "label"), desc=desc)


def sentence(where: str, row: Row, side: str) -> str:
    """Returns the premise or the hypothesis of a row.

    Raises:
        DataError: if it is no text; one without words is a text.
    """
    text = row[side]
    if not isinstance(text, str):
        raise DataError(f"{where}: the {side} is no text. Received: {text!r}.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: the {side} is no Unicode text (half a surrogate pair).") from error
    return text


def label(where: str, row: Row) -> int | None:
    """Returns the number of a row's class; None where there is no gold label.

    Raises:
        DataError: for anything else.
    """
    given = row["label"]
    key = given.strip().lower() if isinstance(given, str) else str(given)
    if key in _LABELS:
        return _LABELS[key]
    if given is None or key in _NO_LABEL:
        return None
    raise DataError(
        f"{where}: unknown label. Received: {given!r}. Expected: {', '.join(CLASSES)}, 0, 1, 2, or - for none."
    )


def split_name(where: str, row: Row) -> str:
    """Returns the split of a row: train, val or test.

    Raises:
        DataError: for anything else.
    """
    given = row.get("split")
    name = given.strip().lower() if isinstance(given, str) else ""
    if name not in _SPLIT_NAMES:
        names = ", ".join(_SPLIT_NAMES)
        raise DataError(f"{where}: unknown split. Received: {given!r}. Expected: one of {names}.")
    return _SPLIT_NAMES[name]


def _tokenized(name: str, pairs: Sequence[SentencePair], tokenizer: Tokenizer) -> EntailmentSplit:
    """Returns pairs of a split as token ids, without those that have no gold label."""
    labelled = [pair for pair in pairs if pair.label is not None]
    return EntailmentSplit(
        name,
        Sentences(*tokenizer.encode([pair.premise for pair in labelled])),
        Sentences(*tokenizer.encode([pair.hypothesis for pair in labelled])),
        np.array([pair.label for pair in labelled], np.int8),
        len(pairs) - len(labelled),
    )


@dataclass(frozen=True)
class PairBatching(Part):
    """How sentence pairs become batches.

    Attributes:
        size: pairs per batch, over all devices.
    """

    size: Count = 128


class SentencePairBatches(BatchSource):
    """Batches of (inputs, label) for `EntailmentModel.fit`.

    The inputs are {"premise": (n, steps) int32, "hypothesis": (n, steps) int32}, each padded to its own
    longest; the label, (n,) int32, is 1 for entailment.

    Args:
        split: the split, usually `train`.
        batch_size: pairs per batch; those left over in an epoch are dropped, each time others.
        seed: of the order.

    Raises:
        InvalidArgumentError: for a batch size < 1.
        DataError: if the split has fewer pairs than a batch.

    Example:

        batches = SentencePairBatches(splits["train"], batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(self, split: EntailmentSplit, *, batch_size: int = 128, seed: int = 0) -> None:
        # By premise, which is the longer side, and by hypothesis among premises of one length.
        lengths = [split.premises.lengths, split.hypotheses.lengths]
        super().__init__(lengths, batch_size=batch_size, seed=seed, unit=f"pairs of the split {split.name!r}")
        self.split = split
        self._labels = split.labels

    def gather(self, rows: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns the inputs and labels of a batch."""
        split = self.split
        inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
        return inputs, self._labels[rows]

    def signature(self) -> Any:
        """Returns the specification of a batch."""
        text = tf.TensorSpec((self.batch_size, None), tf.int32)
        return {"premise": text, "hypothesis": text}, tf.TensorSpec((self.batch_size,), tf.int32)
