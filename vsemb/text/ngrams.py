"""Words with their n-grams of characters, so that a word that training never saw is composed of parts that it saw."""

from __future__ import annotations

import functools
import itertools
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Size
from vsemb.text.tokenizers import LearnedVocabulary, TextReader, Tokenizer, WordReader, WordTokenizer
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary
from vsemb.unicode import composed

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

#: Maximum number of n-grams per word: all of a word of up to 13 letters.
MOST = 48

#: Only the first characters of a word have n-grams, which bounds the work per text.
MAX_CHARACTERS = 100

_BEGIN, _END = "<", ">"


def characters_of(word: str) -> list[str]:
    """Split a word into characters, each with its combining marks.

    Example:

    >>> characters_of("हिन्दी")
    ['हि', 'न्', 'दी']
    """
    characters: list[str] = []
    for character in word:
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def ngrams_of(word: str, shortest: int, longest: int) -> list[str]:
    """Return the n-grams of a word between marks of its begin and end, the longest first.

    Args:
        word: the word, composed (NFC).
        shortest: least number of characters, marks included.
        longest: greatest number.

    Example:

    >>> ngrams_of("dog", 3, 4)
    ['<dog', 'dog>', '<do', 'dog', 'og>']
    """
    characters = characters_of(_BEGIN + word[:MAX_CHARACTERS] + _END)
    return [
        "".join(characters[start : start + size])
        for size in range(longest, shortest - 1, -1)
        for start in range(len(characters) - size + 1)
    ]


class NGramTokenizer(WordTokenizer):
    """Split texts into lower-case words, each with its id and the n-grams that it shares with known words.

    A token has 1 + `MOST` numbers: the id of the word (0 padding, 1 unknown), then the buckets of its n-grams from 1 to
    `buckets`, and 0 for none. N-grams of no known word are left out, since training did not see them. Two n-grams may
    share a bucket; it is the CRC-32 of the n-gram, modulo `buckets`.

    Args:
        vocabulary: the known words.
        max_length: longer texts are truncated to this many words.
        buckets: number of buckets.
        shortest: least number of characters of an n-gram, marks of begin and end included.
        longest: greatest number.

    Raises:
        InvalidArgumentError: for `max_length` < 1, or `shortest` > `longest`.

    Example: `cats` is unknown. Three of its n-grams are in a known word: `<cat`, `<ca` and `cat`.

    >>> tokenizer = NGramTokenizer(Vocabulary(["cat", "dog"]), longest=4)
    >>> tokens = tokenizer(["cats", "dog"]).numpy()
    >>> tokens.shape, tokens[:, 0, 0].tolist(), (tokens[:, 0, 1:] > 0).sum(axis=1).tolist()
    ((2, 1, 49), [1, 3], [3, 5])

    References:
        Bojanowski et al. Enriching Word Vectors with Subword Information. TACL 2017, arXiv:1607.04606.
    """

    token_shape: ClassVar[tuple[int, ...]] = (1 + MOST,)

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_length: int = 64,
        buckets: int = 5_000,
        shortest: int = 3,
        longest: int = 6,
    ) -> None:
        _check_sizes(shortest, longest)
        super().__init__(vocabulary, max_length)
        self.buckets, self.shortest, self.longest = buckets, shortest, longest
        #: N-grams of known words -> their buckets.
        self.known_grams = known_grams(vocabulary, buckets, shortest, longest)
        if tf:
            known = self.known_grams or {"": 0}
            grams, numbers = tf.constant(list(known), tf.string), tf.constant(list(known.values()), tf.int32)
            self.gram_table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(grams, numbers), 0)

    def get_config(self) -> dict[str, Any]:
        sizes = {"buckets": self.buckets, "shortest": self.shortest, "longest": self.longest}
        return {**super().get_config(), **sizes}

    @property
    def ngrams(self) -> dict[str, Any]:
        return {"grams": self.known_grams, "shortest": self.shortest, "longest": self.longest, "most": MOST}

    def token(self, word: str) -> list[int]:
        numbers = [self.known_grams.get(gram, 0) for gram in ngrams_of(word, self.shortest, self.longest)]
        present = [number for number in numbers if number][:MOST]
        return [super().token(word), *present, *[0] * (MOST - len(present))]

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize without padding: (batch,) string -> (batch, None, 1 + `MOST`) ragged int32."""
        words = self._checked_pieces(texts)
        distinct, places = tf.unique(words.flat_values, tf.int64)
        tokens = tf.concat([self.table.lookup(distinct)[:, None], self._grams(distinct)], axis=1)
        return words.with_flat_values(tf.gather(tokens, places))

    def _grams(self, words: tf.Tensor) -> tf.Tensor:
        """Return the buckets of the n-grams of words: (n,) string -> (n, `MOST`) int32."""
        marked = _BEGIN + tf.strings.substr(words, 0, MAX_CHARACTERS, unit="UTF8_CHAR") + _END
        # Words have no white space.
        characters = tf.strings.split(tf.strings.regex_replace(marked, r"(\PM\pM*)", r"\1 ")).to_tensor("")
        numbers: list[Any] = []
        grams = characters
        for size in range(1, self.longest + 1):
            last = characters[:, size - 1 :]
            if size > 1:
                grams = grams[:, :-1] + last
            if size >= self.shortest:
                numbers.insert(0, tf.where(tf.equal(last, ""), 0, self.gram_table.lookup(grams)))
        found = tf.concat(numbers, axis=1)
        return tf.ragged.boolean_mask(found, found > 0)[:, :MOST].to_tensor(shape=(None, MOST))

    def is_known(self, ids: Any) -> Any:
        """Return which tokens are known words, or have an n-gram of a known word; see `Tokenizer.is_known`."""
        return self.is_whole(ids) | (ids[..., 1] > 0)

    def is_whole(self, ids: Any) -> Any:
        return self.word_ids(ids) > UNKNOWN_ID

    def grams_of_words(self) -> np.ndarray:
        words = [self.token(composed(word))[1:] for word in self.vocabulary.words]
        return np.array([[0] * MOST] * (UNKNOWN_ID + 1) + words, np.int32)


def known_grams(vocabulary: Vocabulary, buckets: int, shortest: int, longest: int) -> dict[str, int]:
    """Number the n-grams of known words.

    Args:
        vocabulary: the known words.
        buckets: number of buckets.
        shortest: least number of characters of an n-gram.
        longest: greatest number.

    Returns:
        n-gram -> its bucket, from 1 to `buckets`.

    Example:

    >>> known_grams(Vocabulary(["a"]), buckets=1000, shortest=3, longest=6)
    {'<a>': 516}
    """
    words = [ngrams_of(word, shortest, longest) for word in vocabulary.ids]
    return {gram: 1 + zlib.crc32(gram.encode()) % buckets for gram in itertools.chain.from_iterable(words)}


class NGramReader(WordReader):
    """Raw texts of a tokenizer that composes words.

    Args:
        vocabulary: the run's vocabulary.
        shortest: least number of characters of an n-gram.
        longest: greatest number.
    """

    def __init__(self, vocabulary: Vocabulary, shortest: int, longest: int) -> None:
        super().__init__(vocabulary)
        self._sizes = shortest, longest

    def knows(self, word: str) -> bool:
        """Return whether a word is known or has an n-gram of a known word."""
        return super().knows(word) or not self._grams.isdisjoint(ngrams_of(composed(word).lower(), *self._sizes))

    @functools.cached_property
    def _grams(self) -> frozenset[str]:
        return frozenset(known_grams(self.vocabulary, 1, *self._sizes))


@dataclass(frozen=True)
class NGrams(LearnedVocabulary, kind="ngrams"):
    """Lower-case words, composed of the word and its n-grams of characters, so that unseen words have a vector.

    Attributes:
        min_count: rarer words of the training captions have only n-grams of more frequent ones.
        vocabulary_size: maximum number of words with a vector of their own; null for all words.
        max_length: longer captions are truncated to this many words.
        buckets: number of vectors for n-grams, which share them by a hash.
        shortest: least number of characters of an n-gram, marks of begin and end included.
        longest: greatest number.
    """

    produces: ClassVar[str] = "n-grams"
    whole_words: ClassVar[bool] = True
    token_shape: ClassVar[tuple[int, ...]] = NGramTokenizer.token_shape
    tokenizer: ClassVar[type[Tokenizer]] = NGramTokenizer

    buckets: Count = 5_000
    shortest: Size = 3
    longest: Size = 6

    def check(self) -> None:
        _check_sizes(self.shortest, self.longest)

    @property
    def ngram_buckets(self) -> int:
        return self.buckets

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        return Vocabulary.from_captions(texts, self.min_count, self.vocabulary_size)

    def build(self, vocabulary: Vocabulary) -> NGramTokenizer:
        return NGramTokenizer(vocabulary, self.length, self.buckets, self.shortest, self.longest)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TextReader:
        return NGramReader(vocabulary, self.shortest, self.longest)


def _check_sizes(shortest: int, longest: int) -> None:
    if not 1 <= shortest <= longest:
        raise invalid_argument("shortest", shortest, f"an integer from 1 to longest={longest}")
