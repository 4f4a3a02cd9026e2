"""Vocabularies: known words and their ids."""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, one_line
from vsemb.files import read_text, reading, replacing, sha256_bytes
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.text.normalize import batches_of, split_words, words_of
from vsemb.text.spaces import NO_WORDS, SUBWORDS, share_without_spaces
from vsemb.unicode import composed

PADDING, UNKNOWN = "<pad>", "<unk>"
PADDING_ID, UNKNOWN_ID = 0, 1

# Characters that end a line for some program: one word is one line of the file.
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class Vocabulary:
    """Words and their ids; id 0 is padding, id 1 the unknown word.

    A word is one token: a word, a subword, a character, or the name of a class.

    Args:
        words: the known words in the order of their ids, from 2; no duplicates. White space inside a word
            (`"black footed albatross"`) and the single space are allowed, line breaks are not.
        scores: natural log probability of each subword, stored as float32; None for tokenizers without
            probabilities. Words with scores hold no white space.

    Attributes:
        seen: number of distinct words in the captions from which it was learned, known or not; None if not counted.

    Raises:
        InvalidArgumentError: for duplicate or empty words, white space at the ends of a word, or a line break; for
            scores that are not finite or of another number than the words.

    Example:

    >>> vocabulary = Vocabulary.from_captions(["a dog", "a cat"])
    >>> vocabulary.words
    ('a', 'cat', 'dog')
    >>> len(vocabulary)
    5
    """

    seen: int | None = None

    def __init__(self, words: Sequence[str], scores: Sequence[float] | None = None) -> None:
        seen = {PADDING, UNKNOWN}
        for word in words:
            whole = word == " " or word.strip() == word
            if not word or not whole or _LINE_END.search(word) or word in seen:
                raise invalid_argument("words", word, "distinct words without line breaks or white space around them")
            if scores is not None and word.split() != [word]:
                raise invalid_argument("words", word, "words without white space where they have scores")
            seen.add(word)
        self.words = tuple(words)
        self.scores = None if scores is None else np.asarray(scores, np.float32)
        if self.scores is not None and (self.scores.shape != (len(words),) or not np.isfinite(self.scores).all()):
            raise invalid_argument("scores", scores, f"{len(words)} finite numbers, one for each word")

    def __len__(self) -> int:
        return len(self.words) + 2

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and composed(word) in self.ids

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Word in composed form (NFC) -> id, as texts are looked up; the first of canonically equal words."""
        ids: dict[str, int] = {}
        for number, word in enumerate(self.words, UNKNOWN_ID + 1):
            ids.setdefault(composed(word), number)
        return ids

    @property
    def tokens(self) -> tuple[str, ...]:
        """All entries by id, including padding and unknown."""
        return (PADDING, UNKNOWN, *self.words)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the words in order and their scores."""
        return sha256_bytes("\n".join(self._lines()[2:]).encode())

    def _lines(self) -> list[str]:
        if self.scores is None:
            return list(self.tokens)
        # The shortest decimals that give the same float32.
        scores = ["0", "0", *(str(score) for score in self.scores)]
        return [f"{token}\t{score}" for token, score in zip(self.tokens, scores, strict=True)]

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], min_count: int = 1, vocabulary_size: int | None = None
    ) -> Vocabulary:
        """Build a vocabulary from the words of captions, most frequent first.

        Args:
            captions: raw captions of the training split; read once, a few thousand at a time.
            min_count: rarer words are unknown.
            vocabulary_size: maximum number of words; None for all.

        Raises:
            InvalidArgumentError: for vocabulary_size < 1.
            DataError: if no word is frequent enough.
        """
        require("vocabulary_size", vocabulary_size, Count | None)
        if isinstance(captions, str):
            raise invalid_argument("captions", captions, "a list of captions")
        counts = _count_words(captions)
        vocabulary = cls(list(_frequent(counts, min_count))[:vocabulary_size])
        vocabulary.seen = len(counts)
        return vocabulary

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one token per line, followed by a tab and its score; the line number, from 0, is the id."""
        with replacing(path) as temporary:
            temporary.write_text("\n".join(self._lines()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a file written by `save`.

        Raises:
            DataError: if the file is missing or not a vocabulary.
        """
        with reading(path, "vocabulary"):
            lines = read_text(path).removesuffix("\n").split("\n")
        scored = lines[:2] == [f"{PADDING}\t0", f"{UNKNOWN}\t0"]
        if not scored and lines[:2] != [PADDING, UNKNOWN]:
            raise DataError(f"{path} must be a vocabulary that begins with the lines {PADDING} and {UNKNOWN}.")
        try:
            if not scored:
                return cls(lines[2:])
            words, scores = zip(*(line.split("\t") for line in lines[2:]), strict=True)
            return cls(words, [float(score) for score in scores])
        except (InvalidArgumentError, ValueError) as error:
            raise DataError(f"{path} must be a vocabulary. {one_line(error, 200)}") from error


def count_words(captions: Iterable[str], min_count: int = 1) -> dict[str, int]:
    """Count the words of captions.

    Args:
        captions: raw captions; read once, a few thousand at a time.
        min_count: rarer words are left out.

    Returns:
        word -> count, most frequent first, ties in the order of their characters.

    Raises:
        DataError: if no word is frequent enough.

    Example:

    >>> count_words(["A dog.", "a cat"])
    {'a': 2, 'cat': 1, 'dog': 1}
    """
    return _frequent(_count_words(captions), min_count)


def _count_words(captions: Iterable[str]) -> Counter[str]:
    if not tf:
        return Counter(itertools.chain.from_iterable(words_of(captions)))
    return count_tokens(captions, split_words)


def _frequent(counts: Counter[str], min_count: int) -> dict[str, int]:
    kept = sorted((-n, word) for word, n in counts.items() if n >= min_count)
    if not kept and not counts:
        raise DataError(f"Captions must have letters or digits; got none in all of them. {NO_WORDS}")
    if not kept:
        fix = f"Lower min_count={min_count}."
        if share_without_spaces(list(counts)):
            fix = f"Texts without spaces between words are read as one word each; use {SUBWORDS}."
        raise DataError(f"No word occurs {min_count} times in the captions. {fix}")
    return {word: -negative for negative, word in kept}


def count_tokens(texts: Iterable[str], split: Callable[[tf.Tensor], tf.RaggedTensor]) -> Counter[str]:
    """Count the tokens of texts.

    Args:
        texts: read once, a few thousand at a time.
        split: (batch,) string -> the tokens of each text, (batch, None) ragged string.
    """
    counts: Counter[bytes] = Counter()
    for batch in batches_of(texts):
        counts.update(split(batch).flat_values.numpy().tolist())
    return Counter({token.decode(): count for token, count in counts.items()})
