"""Tokenizers: raw strings to padded ids, in graph."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.text.normalize import split_words
from vsemb.text.vocabulary import Vocabulary

_CHUNK = 8192


class Tokenizer(tf.Module):
    """Base of the tokenizers: splits text into pieces and looks up their ids (0 padding, 1 unknown).

    Args:
        vocabulary: the known pieces.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    #: Shape of a token: () where it is an id, (2,) where it is an id and the place of its head.
    token_shape: ClassVar[tuple[int, ...]] = ()

    def __init__(self, vocabulary: Vocabulary, max_length: int) -> None:
        super().__init__()
        if max_length < 1:
            raise invalid_argument("max_length", max_length, "an integer >= 1")
        self.vocabulary = vocabulary
        self.max_length = max_length
        words = tf.constant(vocabulary.words or ("",), tf.string)
        ids = tf.range(2, 2 + tf.size(words))
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(words, ids), default_value=1
        )

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits and cuts: (batch,) string -> (batch, None) ragged string, `max_length` at most a row."""
        raise NotImplementedError

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes without padding: (batch,) string -> (batch, None) ragged int32."""
        pieces = self.pieces(tf.convert_to_tensor(texts))
        return pieces.with_flat_values(self.table.lookup(pieces.flat_values))

    def word_ids(self, ids: np.ndarray) -> np.ndarray:
        """Returns the ids alone of tokens that say more: (...) + `token_shape` -> (...) int32."""
        return ids[..., 0] if self.token_shape else ids

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Tokenizes and pads on the right.

        Args:
            texts: (batch,) string.

        Returns:
            (batch, steps) + `token_shape` int32, steps the longest of the batch and at least 1.
        """
        return self._padded(self.ragged(texts))

    def _padded(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        dense = tokens.to_tensor()
        missing = tf.maximum(1 - tf.shape(dense)[1], 0)
        return tf.pad(dense, [[0, 0], [0, missing], *([0, 0] for _ in self.token_shape)])

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenizes any number of texts at once, in memory.

        Returns:
            ids: (tokens,) + `token_shape` int32, all texts one behind the other.
            offsets: (texts + 1,) int64; text i is `ids[offsets[i]:offsets[i + 1]]`.
        """
        parts, lengths = [], [np.zeros(1, np.int64)]
        for start in range(0, len(texts), _CHUNK):
            ragged = self.ragged(tf.constant(texts[start : start + _CHUNK], tf.string))
            parts.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        ids = np.concatenate(parts) if parts else np.zeros((0, *self.token_shape), np.int32)
        return ids, np.cumsum(np.concatenate(lengths))


class WordTokenizer(Tokenizer):
    """Splits text into words and looks up their ids (0 padding, 1 unknown).

    Args:
        vocabulary: the known words.
        max_length: longer texts are cut to so many words.

    Raises:
        InvalidArgumentError: for `max_length` < 1.

    Example:

    >>> tokenizer = WordTokenizer(Vocabulary(["a", "dog"]))
    >>> tokenizer(["A dog!", "a zebra and a dog"]).numpy().tolist()
    [[2, 3, 0, 0, 0], [2, 1, 1, 2, 3]]
    """

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        super().__init__(vocabulary, max_length)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return split_words(texts)[:, : self.max_length]
