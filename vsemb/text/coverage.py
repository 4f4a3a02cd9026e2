"""Known tokens of texts: counts for training, evaluation and report, and the unknown words of a query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsemb.errors import counted
from vsemb.text.spaces import SUBWORDS, share_without_spaces
from vsemb.text.tokenizers import Tokenizer

# Texts counted at a time.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class UnknownWords:
    """Numbers of unknown tokens, and of texts with such tokens.

    Attributes:
        unit: name of the tokens, such as `words`.
        texts: number of texts.
        tokens: number of tokens in the texts, after truncation.
        unknown_tokens: number of tokens of which nothing is known.
        unknown_share: share of unknown tokens, from 0 to 1.
        texts_with_unknown: number of texts with an unknown token, or without a token.
        texts_without_known: number of texts without a known token. The model treats all of them alike.
        texts_without_spaces: estimated number of texts that are written without spaces between words, and are one word
            to the model; 0 if few.
        composed_tokens: number of tokens that are not known as a whole, but have known parts, such as n-grams.
    """

    unit: str
    texts: int
    tokens: int
    unknown_tokens: int
    unknown_share: float
    texts_with_unknown: int
    texts_without_known: int
    texts_without_spaces: int
    composed_tokens: int = 0

    def described(self, noun: str = "texts") -> str:
        """Describe unknown tokens, and texts without a known one, as a phrase; `noun` is the plural of a text."""
        texts = f"of {self.texts:,} {noun}"
        without = counted(self.texts_without_known, f"{texts} has", f"{texts} have")
        lost = f"{without} no known {self.unit}"
        if not self.composed_tokens:
            return f"{_percent(self.unknown_share)} of all {self.unit} unknown; {lost}"
        composed = self.composed_tokens / self.tokens
        whole = f"{_percent(1 - composed - self.unknown_share)} of all {self.unit} known as a whole"
        return f"{whole}, {_percent(composed)} composed, nothing known of {_percent(self.unknown_share)}; {lost}"

    @property
    def all_known(self) -> bool:
        """Whether every text has tokens, and all of them are known as a whole."""
        return not (self.texts_with_unknown or self.composed_tokens)

    @property
    def notes(self) -> list[str]:
        """Lines about unknown tokens and texts without spaces; empty if there is nothing to say."""
        notes = self.warnings()
        if not self.all_known:
            notes.append(f"{self.described()}.")
        return notes

    def warnings(self, noun: str = "texts") -> list[str]:
        """Return a line about texts without spaces, with the fix; empty if there are few.

        Args:
            noun: plural of a text.
        """
        if not self.texts_without_spaces:
            return []
        return [
            f"warning: about {self.texts_without_spaces:,} of {self.texts:,} {noun} have no spaces between words, so "
            f"each is read as one word. Train with {SUBWORDS}."
        ]


@dataclass(frozen=True, eq=False)
class Coverage:
    """Known tokens of each of some texts.

    Attributes:
        lengths: (texts,) int64, number of tokens.
        known: (texts,) int64, number of known tokens.
        whole: (texts,) int64, number of tokens that are known as a whole.
        unit: name of the tokens, such as `words`.
        without_spaces: estimated number of texts without spaces between words; 0 if few.
    """

    lengths: np.ndarray
    known: np.ndarray
    whole: np.ndarray
    unit: str = "words"
    without_spaces: int = 0

    @property
    def share(self) -> np.ndarray:
        """(texts,) float64, share of known tokens; 0 for a text without tokens."""
        return self.known / np.maximum(self.lengths, 1)

    @property
    def counts(self) -> UnknownWords:
        """The numbers of tokens and texts."""
        tokens, known = int(self.lengths.sum()), int(self.known.sum())
        return UnknownWords(
            unit=self.unit,
            texts=len(self.lengths),
            tokens=tokens,
            unknown_tokens=tokens - known,
            unknown_share=(tokens - known) / max(tokens, 1),
            texts_with_unknown=int(np.count_nonzero(self.share < 1)),
            texts_without_known=int(np.count_nonzero(self.known == 0)),
            texts_without_spaces=self.without_spaces,
            composed_tokens=known - int(self.whole.sum()),
        )


def coverage(tokenizer: Tokenizer, ids: np.ndarray, offsets: np.ndarray, texts: Iterable[str] = ()) -> Coverage:
    """Count the known tokens of texts.

    Args:
        tokenizer: the tokenizer.
        ids: (tokens,) + `token_shape` int32, as `Tokenizer.encode` returns them; maybe memory-mapped.
        offsets: (texts + 1,) int64.
        texts: the texts; a sample of them tells whether they have spaces between words. Empty if not of interest.

    Example:

    >>> from vsemb.text import Vocabulary, WordTokenizer
    >>> tokenizer = WordTokenizer(Vocabulary(["a", "dog"]))
    >>> known = coverage(tokenizer, *tokenizer.encode(["a dog", "a shield", "zebras"]))
    >>> known.share.tolist(), known.counts.unknown_tokens
    ([1.0, 0.5, 0.0], 2)
    """
    rows = len(offsets) - 1
    known, whole = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for first in range(0, rows, _BLOCK):
        ends = np.asarray(offsets[first : first + _BLOCK + 1], np.int64)
        block = ids[ends[0] : ends[-1]]
        for numbers, tokens in ((known, tokenizer.is_known(block)), (whole, tokenizer.is_whole(block))):
            sums = np.append(0, np.cumsum(np.asarray(tokens), dtype=np.int64))
            numbers[first : first + _BLOCK] = np.diff(sums[ends - ends[0]])
    lengths = np.diff(np.asarray(offsets, np.int64))
    share = share_without_spaces(texts) if tokenizer.unit[0] == "word" else 0.0
    return Coverage(lengths, known, whole, tokenizer.unit[1], round(share * rows))


def unknown_words(tokenizer: Tokenizer, texts: Any) -> tuple[list[str], int, int]:
    """Find the tokens of texts of which nothing is known.

    Args:
        tokenizer: the tokenizer.
        texts: (texts,) string, as the run's reader returns them.

    Returns:
        The distinct unknown tokens in their order, the number of all tokens, and the number of known ones.

    Example:

    >>> from vsemb.text import Vocabulary, WordTokenizer
    >>> unknown_words(WordTokenizer(Vocabulary(["a"])), ["a dog and a dog"])
    (['dog', 'and'], 5, 2)
    """
    pieces = tokenizer.pieces(texts).flat_values.numpy()
    known = np.asarray(tokenizer.is_known(tokenizer.ragged(texts).flat_values))
    unknown = [piece.decode() for piece in pieces[~known]]
    return list(dict.fromkeys(unknown)), len(pieces), int(known.sum())


def unknown_words_of_each(tokenizer: Tokenizer, texts: Any) -> list[list[str]]:
    """Find the tokens of each text of which nothing is known.

    Args:
        tokenizer: the tokenizer.
        texts: (texts,) string, as the run's reader returns them.

    Returns:
        For each text, its distinct unknown tokens in their order.

    Example:

    >>> from vsemb.text import Vocabulary, WordTokenizer
    >>> unknown_words_of_each(WordTokenizer(Vocabulary(["a"])), ["a dog and a dog", "a a"])
    [['dog', 'and'], []]
    """
    pieces = tokenizer.pieces(texts)
    known = np.asarray(tokenizer.is_known(tokenizer.ragged(texts).flat_values))
    unknown: list[list[str]] = [[] for _ in range(pieces.nrows())]
    flat = zip(pieces.value_rowids().numpy().tolist(), pieces.flat_values.numpy(), known, strict=True)
    for row, piece, is_known in flat:
        if not is_known:
            unknown[row].append(piece.decode())
    return [list(dict.fromkeys(words)) for words in unknown]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.001 else "under 0.1 %"
