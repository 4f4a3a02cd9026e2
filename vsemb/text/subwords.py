"""Words in pieces: WordPiece, and the two models of SentencePiece, in graph.

Segmentation is written with core operations, so that a SavedModel needs no library of tokenizers; tests hold
it to TensorFlow Text and SentencePiece, which learn the pieces (`vsemb.text.piece_learning`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.text.normalize import split_words
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.unigram import likeliest, substrings
from vsemb.text.vocabulary import Vocabulary

#: Stands in front of a piece that continues a word (WordPiece).
CONTINUES = "##"

#: Stands in front of a piece that begins a word (SentencePiece).
BEGINS = "\u2581"

#: A longer word is one unknown piece, so that no text makes a lot of work.
MAX_CHARACTERS = 100

# How much less likely than the least likely piece SentencePiece takes an unknown character to be.
_PENALTY = 10.0

# As in `Tokenizer`.
UNKNOWN_ID = 1


class SubwordTokenizer(Tokenizer):
    """Base of the tokenizers that split words, as `split_words` gives them, into pieces.

    So a text is lower-cased and its punctuation goes, as in `WordTokenizer`, and no piece crosses the end of
    a word. A word of more than `MAX_CHARACTERS` characters is one unknown piece.

    Args:
        vocabulary: the known pieces.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    #: Stands in front of a word before it is split.
    prefix: ClassVar[str] = ""

    unit: ClassVar[tuple[str, str]] = ("subword", "subwords")

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        super().__init__(vocabulary, max_length)
        #: Characters of the longest piece.
        self.longest = max((len(self.surface(word)) for word in vocabulary.words), default=1)

    def surface(self, piece: str) -> str:
        """Returns the characters of a prefixed word that a piece stands for."""
        return piece

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Splits words into pieces.

        Args:
            words: (n,) string, each with `prefix` and of 1 to `MAX_CHARACTERS` characters besides.

        Returns:
            (n, None) ragged string, a piece at least a row.
        """
        raise NotImplementedError

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        # A word has a piece at least.
        words = split_words(texts)[:, : self.max_length]
        distinct, places = tf.unique(words.flat_values, tf.int64)
        long = tf.strings.length(distinct, unit="UTF8_CHAR") > MAX_CHARACTERS
        split = self.segment(self.prefix + tf.boolean_mask(distinct, ~long))
        whole = tf.RaggedTensor.from_tensor(tf.boolean_mask(distinct, long)[:, None])
        order = tf.concat([tf.where(~long), tf.where(long)], axis=0)[:, 0]
        places = tf.gather(tf.math.invert_permutation(order), places)
        parts = tf.gather(tf.concat([split, whole], axis=0), places)
        return words.with_values(parts).merge_dims(1, 2)[:, : self.max_length]


class WordPieceTokenizer(SubwordTokenizer):
    """Splits each word into the longest known pieces from left to right (0 padding, 1 unknown).

    A piece that continues a word begins with `##`. A word that does not come out even is one unknown piece.

    Args:
        vocabulary: the known pieces, see `vsemb.text.learn_wordpieces`.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1.

    Example:

    >>> tokenizer = WordPieceTokenizer(Vocabulary(["a", "dog", "##s", "run", "##ning"]))
    >>> tokenizer.pieces(tf.constant(["Dogs running!"])).to_list()
    [[b'dog', b'##s', b'run', b'##ning']]
    >>> tokenizer(["a dog", "dogs run a lot"]).numpy().tolist()
    [[2, 3, 0, 0, 0], [3, 4, 5, 2, 1]]

    References:
        Wu et al. Google's Neural Machine Translation System. arXiv:1609.08144.
        Devlin et al. BERT. NAACL 2019, arXiv:1810.04805.
    """

    def surface(self, piece: str) -> str:
        return piece.removeprefix(CONTINUES)

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        lengths = tf.strings.length(words, unit="UTF8_CHAR")
        sizes = tf.range(self.longest, 0, -1)

        def next_piece(step: tf.Tensor, start: tf.Tensor, fits: tf.Tensor, written: Any) -> Any:
            left = lengths - start
            found = _substrings(words, tf.tile(start[:, None], [1, self.longest]), sizes)
            found = tf.where(start[:, None] > 0, CONTINUES + found, found)
            known = (self.table.lookup(found) > UNKNOWN_ID) & (sizes <= left[:, None])
            best = tf.argmax(known, axis=1)  # The first of those known, the longest.
            known = tf.reduce_any(known, axis=1)
            piece = tf.where(known, tf.gather(found, best, axis=1, batch_dims=1), "")
            # Where nothing fits, the word is done with.
            start += tf.where(known, tf.gather(sizes, best), left)
            return step + 1, start, fits & (known | (left == 0)), written.write(step, piece)

        _, _, fits, written = tf.while_loop(
            # Once at least, since nothing cannot be stacked.
            lambda step, start, *_: (step == 0) | tf.reduce_any(start < lengths),
            next_piece,
            [0, tf.zeros_like(lengths), lengths >= 0, _columns(words)],
        )
        pieces = tf.transpose(written.stack())
        whole = tf.pad(words[:, None], [[0, 0], [0, tf.shape(pieces)[1] - 1]])
        pieces = tf.where(fits[:, None], pieces, whole)
        return tf.ragged.boolean_mask(pieces, tf.not_equal(pieces, ""))


class UnigramTokenizer(SubwordTokenizer):
    """Splits each word into its most probable pieces: SentencePiece's unigram model (0 padding, 1 unknown).

    The probability of a word is the product of those of its pieces; a piece that begins a word begins with
    U+2581 ("▁"). A character that no piece has is unknown, and unknown characters in a row are one piece.

    Args:
        vocabulary: the known pieces and the logarithms of their probabilities, see
            `vsemb.text.learn_sentencepieces`.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1, or a vocabulary without scores.

    Example: "dogs" as "dog" and "s", since 0.2 times 0.1 is more than 0.01.

    >>> vocabulary = Vocabulary(["▁dog", "s", "▁dogs"], np.log([0.2, 0.1, 0.01]))
    >>> tokenizer = UnigramTokenizer(vocabulary)
    >>> [piece.decode() for piece in tokenizer.pieces(tf.constant(["Dogs!"])).flat_values.numpy()]
    ['▁dog', 's']

    References:
        Kudo. Subword Regularization. ACL 2018, arXiv:1804.10959.
        Kudo, Richardson. SentencePiece. EMNLP 2018, arXiv:1808.06226.
    """

    prefix = BEGINS

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        if vocabulary.scores is None:
            fix = "Learn one with vsemb.text.learn_sentencepieces."
            raise invalid_argument("vocabulary", vocabulary.words[:3], "pieces with scores", fix)
        super().__init__(vocabulary, max_length)
        self.unknown_score = float(np.min(vocabulary.scores, initial=0.0)) - _PENALTY
        # Padding and the unknown piece are never chosen for their score; where nothing is known, `table` has
        # one entry all the same.
        never = np.full(3, -np.inf, np.float32)
        self.scores = np.concatenate([never[:2], vocabulary.scores, never[2:]])

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        counts = tf.strings.length(words, unit="UTF8_CHAR")
        texts, there = substrings(words, counts, self.longest)
        ids = self.table.lookup(texts)
        of_unknown = tf.one_hot(0, self.longest, self.unknown_score, -np.inf)
        of_pieces = tf.where(ids > UNKNOWN_ID, tf.gather(tf.constant(self.scores), ids), of_unknown)
        lengths, chosen = likeliest(tf.where(there, of_pieces, -np.inf), counts)
        pieces = tf.gather(texts, lengths - 1, batch_dims=2)
        return _unknown_joined(tf.ragged.boolean_mask(pieces, chosen), self.table)


class BPETokenizer(SubwordTokenizer):
    """Joins the characters of each word, pair by pair, to pieces: byte pair encoding (0 padding, 1 unknown).

    Of all neighbours in a word that together are a known piece, those come first whose piece comes first in
    the vocabulary, and of these the leftmost. The first character of a word is U+2581 ("▁"). A
    character that no piece has is unknown, and unknown characters in a row are one piece.

    Args:
        vocabulary: the known pieces in the order in which they were learned, see
            `vsemb.text.learn_sentencepieces`.
        max_length: longer texts are cut to so many pieces.

    Raises:
        InvalidArgumentError: for `max_length` < 1.

    Example:

    >>> tokenizer = BPETokenizer(Vocabulary(["do", "▁do", "gs", "▁", "d", "o", "g", "s"]))
    >>> [piece.decode() for piece in tokenizer.pieces(tf.constant(["Dogs!"])).flat_values.numpy()]
    ['▁do', 'gs']

    References:
        Sennrich et al. Neural Machine Translation of Rare Words with Subword Units. ACL 2016,
        arXiv:1508.07909. Here as SentencePiece has it.
    """

    prefix = BEGINS

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        symbols = tf.strings.unicode_split(words, "UTF-8").to_tensor("")  # (n, steps)
        steps = tf.shape(symbols)[1]
        places = tf.range(steps)
        last = np.iinfo(np.int32).max

        def rank(symbols: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Neighbours together, (n, steps) string, and their rank, the smaller the earlier."""
            after = tf.pad(symbols[:, 1:], [[0, 0], [0, 1]])
            pairs = symbols + after
            ids = self.table.lookup(pairs)
            return pairs, tf.where((ids > UNKNOWN_ID) & tf.not_equal(after, ""), ids, last)

        def join(symbols: tf.Tensor, pairs: tf.Tensor, ranks: tf.Tensor) -> Any:
            found = tf.reduce_any(ranks < last, axis=1)
            chosen = tf.where(found, tf.argmin(ranks, axis=1, output_type=tf.int32), steps)[:, None]
            after = tf.pad(symbols[:, 1:], [[0, 0], [0, 1]])
            symbols = tf.where(places < chosen, symbols, tf.where(places == chosen, pairs, after))
            return symbols, *rank(symbols)

        symbols, _, _ = tf.while_loop(lambda _, __, ranks: tf.reduce_any(ranks < last), join, [symbols, *rank(symbols)])
        return _unknown_joined(tf.ragged.boolean_mask(symbols, tf.not_equal(symbols, "")), self.table)


def _substrings(words: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Cuts words, (n,), at starts, (n, k), to the k sizes; what is outside of a word is missing."""
    lengths = tf.strings.length(words, unit="UTF8_CHAR")[:, None]
    starts = tf.clip_by_value(starts, 0, lengths)
    return tf.strings.substr(words[:, None], starts, tf.zeros_like(starts) + sizes, unit="UTF8_CHAR")


def _columns(words: tf.Tensor) -> tf.TensorArray:
    """What a loop writes one string for each word to, step by step."""
    return tf.TensorArray(tf.string, 0, dynamic_size=True, element_shape=words.shape)


def _unknown_joined(pieces: tf.RaggedTensor, table: Any) -> tf.RaggedTensor:
    """Makes unknown pieces that follow each other in a word, (n, None) ragged string, one."""
    unknown, rows = table.lookup(pieces.flat_values) == UNKNOWN_ID, pieces.value_rowids()
    same = (rows[1:] == rows[:-1]) & unknown[1:] & unknown[:-1]
    begins = tf.concat([tf.ones_like(unknown[:1]), ~same], axis=0)
    numbers = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    joined = tf.strings.unsorted_segment_join(pieces.flat_values, numbers, tf.reduce_sum(tf.cast(begins, tf.int32)))
    return tf.RaggedTensor.from_value_rowids(joined, tf.boolean_mask(rows, begins), pieces.nrows())
