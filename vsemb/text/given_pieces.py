"""Tokenizers whose pieces and ids were published with a network, moved up to make room for our own ids."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import PADDING, UNKNOWN, Vocabulary

#: Added to published ids: 0 is padding here, and 1 an unknown word, which such tokenizers never give.
SHIFT = 2


class PretrainedSubwordTokenizer(Tokenizer):
    """Base of the tokenizers with published ids: a piece of id i there has id i + 2 here.

    Args:
        vocabulary: what `piece_vocabulary` makes of all pieces.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        # Not the base's own, whose table of words would be looked up by nobody.
        super(Tokenizer, self).__init__()
        if max_length < 1:
            raise invalid_argument("max_length", max_length, "an integer >= 1")
        self.vocabulary = vocabulary
        self.max_length = max_length

    def given(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes without cutting: (batch,) string -> (batch, None) ragged int32 of published ids."""
        raise NotImplementedError

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ids = self.ragged(texts)
        return ids.with_flat_values(tf.gather(tf.constant(self.vocabulary.tokens), ids.flat_values))

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ids = self.given(tf.convert_to_tensor(texts))[:, : self.max_length]
        return ids.with_flat_values(ids.flat_values + SHIFT)


def piece_vocabulary(pieces: Sequence[str]) -> Vocabulary:
    r"""Lists published pieces by id, written so that a vocabulary takes them.

    White space and control characters are written as `\u` and their number, the names that a vocabulary
    reserves in brackets, and what is there already once more with its id.

    Example:

    >>> piece_vocabulary(["<pad>", "a", "\n", "a"]).words
    ('[<pad>]', 'a', '\\u000a', 'a#3')
    """
    words: list[str] = []
    seen = set()
    for number, piece in enumerate(pieces):
        word = "".join(_seen(letter) for letter in piece) or "[]"
        word = f"[{word}]" if word in (PADDING, UNKNOWN) else word
        word = f"{word}#{number}" if word in seen else word
        seen.add(word)
        words.append(word)
    return Vocabulary(words)


def _seen(letter: str) -> str:
    return letter if letter.isprintable() and not letter.isspace() else f"\\u{ord(letter):04x}"
