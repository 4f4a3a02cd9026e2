"""Labelled sentence pairs, streamed from the files of SNLI and SICK or from any table, and their batches.

One pass over the lines collects the words, a second converts them to ids. Only ids stay in memory: 60 MB for the
570,000 pairs of SNLI.
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

from vsemb.data.batches import BatchSource, pad_ids
from vsemb.data.readers.hash_splits import split_of_digest
from vsemb.data.readers.table import read_rows
from vsemb.errors import DataError, unknown_name
from vsemb.files import sha256_bytes, sha256_file
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Part
from vsemb.text.tokenizers import Tokenizer
from vsemb.unicode import composed, has_surrogate

#: The classes; a label is an index into them.
CLASSES = ("entailment", "neutral", "contradiction")

#: Column -> accepted names in lower case: plain ones, SNLI's and SICK's.
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
# SNLI's mark of a pair without agreement of the annotators, as a string and as a number.
_NO_LABEL = ("-", "-1")
_SPLIT_NAMES = {name: name for name in SPLITS} | dict.fromkeys(("dev", "valid", "validation", "trial"), "val")
# If a split exists in several formats, as in SNLI's archive, the first of these is read.
_SUFFIXES = (".jsonl", ".tsv", ".txt")

Row = Mapping[str, Any]
_CHUNK = 4096


def find_files(path: Path) -> dict[str, Path]:
    """Find the files of a source.

    Args:
        path: a folder or a file.

    Returns:
        split -> its file; or "" -> the only file, with the pairs of all splits.

    Raises:
        DataError: if the source has no sentence pairs, or the files are ambiguous.
    """
    if not path.exists():
        raise DataError(f"{path} must be an existing file or folder of sentence pairs. Expected: {EXPECTED}.")
    if not path.is_dir():
        if path.suffix.lower() not in _SUFFIXES:
            raise DataError(f"{path} must be a file of sentence pairs. Expected: {EXPECTED}.")
        return {"": path}
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES and file.is_file()]
    tables = [file for file in files if not re.match(r"\.|readme", file.name.lower())]
    of_split: dict[str, Path] = {}
    for file in sorted(tables, key=lambda file: _SUFFIXES.index(file.suffix.lower())):
        # As in snli_1.0_dev.jsonl and SICK_trial.txt.
        words = re.split(r"[\W_]+", file.stem.lower())
        named = {_SPLIT_NAMES[word] for word in words if word in _SPLIT_NAMES}
        if len(named) != 1:
            continue
        (split,) = named
        other = of_split.setdefault(split, file)
        if other != file and other.suffix.lower() == file.suffix.lower():
            raise DataError(f"{path} must hold one file of split {split!r}; got {other.name} and {file.name}.")
    if of_split:
        return {split: of_split[split] for split in SPLITS if split in of_split}
    if len(tables) == 1:
        return {"": tables[0]}
    raise DataError(f"{path} must hold one file of sentence pairs, or one per split. Expected: {EXPECTED}.")


class SentencePair(NamedTuple):
    """A sentence pair; `label` is an index into `CLASSES`, or None without a gold label."""

    split: str
    premise: str
    hypothesis: str
    label: int | None


@dataclass(frozen=True, eq=False)
class Sentences:
    """Tokenized sentences in one array.

    Attributes:
        ids: (tokens,) int32.
        offsets: (sentences + 1,) int64; sentence i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Sentences]) -> Sentences:
        """Concatenate sentences."""
        lengths = [np.zeros(1, np.int64), *(part.lengths for part in parts)]
        return cls(np.concatenate([part.ids for part in parts]), np.cumsum(np.concatenate(lengths)))

    @property
    def lengths(self) -> np.ndarray:
        """(sentences,) int64, in words."""
        return np.diff(self.offsets)

    def padded(self, rows: np.ndarray) -> np.ndarray:
        """Gather sentences, padded with 0 on the right: (rows, steps) int32."""
        return pad_ids(self.ids, self.offsets, rows)


@dataclass(frozen=True, eq=False)
class EntailmentSplit:
    """The pairs of a split as token ids.

    Attributes:
        name: name of the split.
        premises: the first sentences.
        hypotheses: the second sentences.
        classes: (pairs,) int8, indices into `CLASSES`.
        dropped: number of pairs without a gold label, which are left out.
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
        """(pairs,) int32, 1 if the premise entails the hypothesis, 0 for neutral and contradiction.

        Merged as in Vendrov et al. 2016, section 5.2.
        """
        return (self.classes == 0).astype(np.int32)


@dataclass(frozen=True)
class EntailmentData:
    """Labelled sentence pairs on disk.

    Sources without splits are split 80 / 10 / 10 by premise, see `premise_split`.

    Attributes:
        path: a folder or a file.
        files: split -> its file; or "" -> the only file, with the pairs of all splits.
        split_seed: seed of the splits of a source without splits; default 0.

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
        """Open a folder with one file per split, or one file.

        Args:
            path: the folder or file.
            split_seed: seed of the splits of a source without splits.

        Raises:
            DataError: if the source has no sentence pairs, or a first line is malformed.
        """
        data = cls(Path(path), find_files(Path(path)), split_seed)
        for file in data.files.values():
            if next(pair_rows(file), None) is None:
                raise DataError(f"{file} must have sentence pairs; got 0. Expected: {EXPECTED}.")
        return data

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the files and of their split into train, val and test."""
        files = {split: sha256_file(file) for split, file in self.files.items()}
        return sha256_bytes(json.dumps([files, self.split_seed if self.grouped else None]).encode())

    @cached_property
    def grouped(self) -> bool:
        """Whether splits are assigned by premise, because the source has no splits."""
        return "" in self.files and "split" not in next(pair_rows(self.files[""]))[1]

    @property
    def protocol(self) -> str:
        """Description of the splits."""
        names = ", ".join(file.name for file in self.files.values())
        if self.grouped:
            return (
                f"{names} without splits: 80/10/10 by premise (SHA-256, seed {self.split_seed}), each premise "
                "in one split"
            )
        return f"the splits of {names}"

    def pairs(self, splits: Collection[str] = SPLITS, desc: str | None = None) -> Iterator[SentencePair]:
        """Read the pairs of some splits in file order, including pairs without a gold label.

        Args:
            splits: names of the splits; default all.
            desc: label of the progress bar; None for no bar.

        Raises:
            DataError: with file and line, if a line is malformed.
        """
        for name, file in self.files.items():
            if name and name not in splits:
                continue
            for where, row in pair_rows(file, desc):
                premise = sentence(where, row, "premise")
                hypothesis = sentence(where, row, "hypothesis")
                if self.grouped and "split" in row:
                    raise DataError(
                        f"{where}: all rows or no rows must have a split; this row has one, the first does not."
                    )
                if name:
                    split = name
                elif self.grouped:
                    split = premise_split(premise, self.split_seed)
                else:
                    split = split_name(where, row)
                if split in splits:
                    yield SentencePair(split, premise, hypothesis, label(where, row))

    def texts(self, split: str) -> Iterator[str]:
        """Read the sentences of a split's labelled pairs, for a vocabulary.

        Raises:
            DataError: with file and line, if a line is malformed; or if the split has no labelled pairs.
        """
        has_pairs = False
        for pair in self.pairs([split], desc="words"):
            if pair.label is not None:
                has_pairs = True
                yield pair.premise
                yield pair.hypothesis
        if not has_pairs:
            raise self._lacks(split)

    def encode(self, tokenizer: Tokenizer, splits: Collection[str] = SPLITS) -> dict[str, EntailmentSplit]:
        """Convert pairs to token ids, a few thousand at a time.

        Args:
            tokenizer: tokenizer of the model.
            splits: names of the splits; default all.

        Returns:
            split -> its pairs.

        Raises:
            InvalidArgumentError: for an unknown split.
            DataError: with file and line, if a line is malformed; or if a split has no labelled pairs.
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
        for name, chunks in parts.items():
            if not any(map(len, chunks)):
                raise self._lacks(name)
            encoded[name] = EntailmentSplit(
                name,
                Sentences.joined([part.premises for part in chunks]),
                Sentences.joined([part.hypotheses for part in chunks]),
                np.concatenate([part.classes for part in chunks]),
                sum(part.dropped for part in chunks),
            )
        return encoded

    def _lacks(self, split: str) -> DataError:
        return DataError(f"{self.path} must have labelled pairs in split {split!r}; got 0. Expected: {EXPECTED}.")


def premise_split(premise: str, seed: int = 0) -> str:
    """Return the split of a premise: train (80 %), val (10 %) or test (10 %).

    All pairs of a premise are in one split, so training contains no test premises. Case and the amount of white space
    are ignored.

    Args:
        premise: the sentence.
        seed: seed of the split; default 0.

    Example:

    >>> premise_split("A dog runs.") == premise_split("a dog  runs.")
    True
    """
    text = f"{seed}\n{' '.join(composed(premise).lower().split())}"
    return split_of_digest(hashlib.sha256(text.encode()).digest())


def pair_rows(file: Path, desc: str | None = None) -> Iterator[tuple[str, Row]]:
    """Read the rows of a file of sentence pairs, see `vsemb.data.readers.table.read_rows`."""
    return read_rows(file, COLUMNS, ("premise", "hypothesis", "label"), desc=desc)


def sentence(where: str, row: Row, side: str) -> str:
    """Return the premise or the hypothesis of a row.

    Raises:
        DataError: if it is not a string, or not valid Unicode. A string without words is valid.
    """
    text = row[side]
    if not isinstance(text, str):
        raise DataError(f"{where}: the {side} must be a string; got {text!r}.")
    if has_surrogate(text):
        raise DataError(f"{where}: the {side} must be valid Unicode; got a lone surrogate.")
    return text


def label(where: str, row: Row) -> int | None:
    """Return the class index of a row; None without a gold label.

    Raises:
        DataError: for an unknown label.
    """
    value = row["label"]
    key = str(value).strip().lower()
    if key in _LABELS:
        return _LABELS[key]
    if value is None or key in _NO_LABEL:
        return None
    raise DataError(f"{where}: the label must be {', '.join(CLASSES)}, 0, 1, 2, or - for none; got {value!r}.")


def split_name(where: str, row: Row) -> str:
    """Return the split of a row: train, val or test.

    Raises:
        DataError: for an unknown split.
    """
    value = row.get("split")
    name = str(value).strip().lower()
    if name not in _SPLIT_NAMES:
        names = ", ".join(_SPLIT_NAMES)
        raise DataError(f"{where}: the split must be one of {names}; got {value!r}.")
    return _SPLIT_NAMES[name]


def _tokenized(name: str, pairs: Sequence[SentencePair], tokenizer: Tokenizer) -> EntailmentSplit:
    """Return the labelled pairs of a split as token ids."""
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
    """Part of a recipe: batches of sentence pairs.

    Attributes:
        size: pairs per batch, over all devices.
    """

    size: Count = 128


class SentencePairBatches(BatchSource):
    """Batches of (inputs, label) for `EntailmentModel.fit`.

    The inputs are {"premise": (n, steps) int32, "hypothesis": (n, steps) int32}, each padded to its longest sentence.

    Args:
        split: the split, usually `train`.
        labels: (pairs,) int32; default: 1 for entailment, else 0.
        batch_size: pairs per batch; default 128. Pairs after the last full batch of an epoch are dropped.
        seed: seed of the order; default 0.

    Raises:
        InvalidArgumentError: if `batch_size` < 1.
        DataError: if the split has fewer pairs than a batch.

    Example:

        batches = SentencePairBatches(splits["train"], batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(
        self, split: EntailmentSplit, labels: np.ndarray | None = None, *, batch_size: int = 128, seed: int = 0
    ) -> None:
        # By length of the premise, the longer side, then of the hypothesis.
        lengths = [split.premises.lengths, split.hypotheses.lengths]
        super().__init__(lengths, batch_size=batch_size, seed=seed, unit=f"pairs of the split {split.name!r}")
        self.split = split
        self._labels = split.labels if labels is None else labels

    @property
    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        both = Sentences.joined([self.split.premises, self.split.hypotheses])
        return both.ids, both.offsets

    def gather(self, rows: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the inputs and labels of a batch."""
        split = self.split
        inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
        return inputs, self._labels[rows]

    def signature(self) -> Any:
        """Return the specification of a batch."""
        text = tf.TensorSpec((self.batch_size, None), tf.int32)
        return {"premise": text, "hypothesis": text}, tf.TensorSpec((self.batch_size,), tf.int32)
