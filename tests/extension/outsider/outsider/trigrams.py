"""A tokenizer: every three letters of a word, in graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vsemb.parts import Count, Size
from vsemb.text.normalize import split_words
from vsemb.text.tokenizers import Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary


class TrigramTokenizer(Tokenizer):
    """Splits words, with a mark at both ends, into their trigrams."""

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = split_words(texts)  # (batch, words)
        letters = tf.strings.unicode_split(tf.strings.join(["^", words.flat_values, "$"]), "UTF-8")
        trigrams = tf.strings.ngrams(letters, 3, separator="")  # (all words, trigrams)
        return words.with_flat_values(trigrams).merge_dims(1, 2)[:, : self.max_length]


@dataclass(frozen=True)
class Trigrams(TokenizerPart, kind="trigrams"):
    """Trigrams of letters.

    Attributes:
        min_count: trigrams seen less often in the training captions are unknown.
        max_length: longer captions are cut to so many trigrams.
    """

    min_count: Count = 1
    max_length: Size = 200

    @property
    def length(self) -> int:
        return self.max_length

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        splitter = TrigramTokenizer(Vocabulary([]), self.max_length)
        found = splitter.pieces(tf.constant(list(texts))).flat_values.numpy()
        counts = Counter(trigram.decode() for trigram in found)
        return Vocabulary(sorted(trigram for trigram, count in counts.items() if count >= self.min_count))

    def build(self, vocabulary: Vocabulary) -> TrigramTokenizer:
        return TrigramTokenizer(vocabulary, self.max_length)
