"""Subwords that are learned from captions: WordPiece, and the unigram and BPE models of SentencePiece.

The subwords are learned by TensorFlow Text and SentencePiece from the counts of words, which `split_words` gives, so
the order of the captions does not matter. Segmentation is written with core operations, in graph, so that a SavedModel
needs no library of tokenizers; tests compare it with these libraries.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.text.normalize import split_words
from vsemb.text.segmentation import NEVER, merge_neighbours, segment_distinct, unigram_pieces
from vsemb.text.tokenizers import LearnedVocabulary, Tokenizer
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary, count_words

#: The default number of subwords: about half of the words of Flickr8k's captions.
SUBWORDS = 4000

#: Stands in front of a piece that continues a word (WordPiece).
CONTINUES = "##"

#: Stands in front of a piece that begins a word (SentencePiece).
BEGINS = "\u2581"

#: A longer word is one unknown piece, so that no text makes a lot of work.
MAX_CHARACTERS = 100

# The score of an unknown character is that of the least likely piece minus this, as in SentencePiece.
_PENALTY = 10.0

# Limit of SentencePiece on the length of a piece; TensorFlow Text's is `MAX_CHARACTERS` here.
_LONGEST = 16


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
        return segment_distinct(words, self._segment_short)[:, : self.max_length]

    def _segment_short(self, words: tf.Tensor) -> tf.RaggedTensor:
        long = tf.strings.length(words, unit="UTF8_CHAR") > MAX_CHARACTERS
        split = self.segment(self.prefix + tf.boolean_mask(words, ~long))
        whole = tf.RaggedTensor.from_tensor(tf.boolean_mask(words, long)[:, None])
        order = tf.concat([tf.where(~long), tf.where(long)], axis=0)[:, 0]
        return tf.gather(tf.concat([split, whole], axis=0), tf.math.invert_permutation(order))


class WordPieceTokenizer(SubwordTokenizer):
    """Splits each word into the longest known pieces from left to right (0 padding, 1 unknown).

    A piece that continues a word begins with `##`. A word that does not come out even is one unknown piece.

    Args:
        vocabulary: the known pieces, see `WordPiece`.
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
            # What is outside of a word is missing.
            starts = tf.tile(tf.minimum(start, lengths)[:, None], [1, self.longest])
            found = tf.strings.substr(words[:, None], starts, tf.zeros_like(starts) + sizes, unit="UTF8_CHAR")
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
            [
                0,
                tf.zeros_like(lengths),
                lengths >= 0,
                tf.TensorArray(tf.string, 0, dynamic_size=True, element_shape=words.shape),
            ],
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
            `vsemb.text.subwords.SentencePiece`.
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
            fix = "Learn one with vsemb.text.subwords.SentencePiece."
            raise invalid_argument("vocabulary", vocabulary.words[:3], "pieces with scores", fix)
        super().__init__(vocabulary, max_length)
        unknown = np.min(vocabulary.scores, initial=0.0) - _PENALTY
        self.scores = np.concatenate([[-np.inf, unknown], vocabulary.scores]).astype(np.float32)

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        counts = tf.strings.length(words, unit="UTF8_CHAR")
        pieces, ids, _ = unigram_pieces(words, counts, self.table, self.scores, self.longest, UNKNOWN_ID)
        return _unknown_joined(tf.ragged.boolean_mask(pieces, ids > 0), self.table)


class BPETokenizer(SubwordTokenizer):
    """Joins the characters of each word, pair by pair, to pieces: byte pair encoding (0 padding, 1 unknown).

    Of all neighbours in a word that together are a known piece, those come first whose piece comes first in
    the vocabulary, and of these the leftmost. The first character of a word is U+2581 ("▁"). A
    character that no piece has is unknown, and unknown characters in a row are one piece.

    Args:
        vocabulary: the known pieces in the order in which they were learned, see
            `vsemb.text.subwords.SentencePiece`.
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
        def join(left: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            pairs = left + right
            ids = self.table.lookup(pairs)
            return pairs, tf.where((ids > UNKNOWN_ID) & tf.not_equal(right, ""), ids, NEVER)

        symbols = merge_neighbours(tf.strings.unicode_split(words, "UTF-8").to_tensor(""), join)
        return _unknown_joined(tf.ragged.boolean_mask(symbols, tf.not_equal(symbols, "")), self.table)


def _unknown_joined(pieces: tf.RaggedTensor, table: Any) -> tf.RaggedTensor:
    """Makes unknown pieces that follow each other in a word, (n, None) ragged string, one."""
    unknown, rows = table.lookup(pieces.flat_values) == UNKNOWN_ID, pieces.value_rowids()
    same = (rows[1:] == rows[:-1]) & unknown[1:] & unknown[:-1]
    begins = tf.concat([tf.ones_like(unknown[:1]), ~same], axis=0)
    numbers = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    joined = tf.strings.unsorted_segment_join(pieces.flat_values, numbers, tf.reduce_sum(tf.cast(begins, tf.int32)))
    return tf.RaggedTensor.from_value_rowids(joined, tf.boolean_mask(rows, begins), pieces.nrows())


@dataclass(frozen=True)
class Subwords(LearnedVocabulary):
    """Base of the recipe parts whose tokenizer learns subwords from the training captions.

    Attributes:
        min_count: words seen less often in the training captions teach no subwords.
        vocabulary_size: number of subwords at most; null for 4000. All characters are among them.
        max_length: longer captions are cut to so many subwords.
    """

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Returns the words to learn from, with their counts; longer ones are never split.

        Raises:
            DataError: if no word is left.
        """
        counts = count_words(texts, self.min_count)
        return {word: count for word, count in counts.items() if len(word) <= MAX_CHARACTERS} or counts

    def size(self, characters: int) -> int:
        """Returns the number of subwords to learn.

        Args:
            characters: how many subwords the characters need.

        Raises:
            InvalidArgumentError: if there are more of them.
        """
        size = self.vocabulary_size or SUBWORDS
        if characters > size:
            fix = "Every character is a subword. Raise it, or min_count, which leaves rare words' characters out."
            raise invalid_argument("vocabulary_size", size, f"an integer >= {characters}", fix)
        return size


@dataclass(frozen=True)
class WordPiece(Subwords, kind="wordpiece"):
    """WordPiece subwords, learned by TensorFlow Text; each character has one to begin a word and one to continue it.

    Example:

    >>> vocabulary = WordPiece(vocabulary_size=40).learn(["walking dogs", "walking", "talking"] * 20)
    >>> "##s" in vocabulary, len(vocabulary.words) <= 40
    (True, True)
    """

    tokenizer: ClassVar[type[Tokenizer]] = WordPieceTokenizer

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        # Only here, since it takes a second and serving does without.
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

        counts = self.count_words(texts)
        characters = sorted(set(itertools.chain.from_iterable(counts)))
        alphabet = characters + [CONTINUES + character for character in characters]
        size = self.size(len(alphabet))
        learned = learner.learn(
            list(counts.items()),
            size,
            reserved_tokens=[],
            # The defaults cut what few captions have.
            lower_thresh=1,
            max_unique_chars=len(characters),
            max_token_length=MAX_CHARACTERS,
            joiner=CONTINUES,
        )
        # The learner may end above the size, and then the rarest go, but no character.
        kept = set(alphabet)
        longer = [piece for piece in learned if piece not in kept]
        return Vocabulary(alphabet + longer[: size - len(alphabet)])


@dataclass(frozen=True)
class SentencePiece(Subwords, kind="sentencepiece"):
    """Subwords of SentencePiece's unigram model.

    Class attributes:
        model: `unigram`, whose pieces have scores, or `bpe`, as SentencePiece calls them.

    Example:

    >>> vocabulary = SentencePiece(vocabulary_size=40).learn(["walking dogs"] * 20)
    >>> len(vocabulary.words) <= 40, len(vocabulary.scores) == len(vocabulary.words)
    (True, True)
    """

    tokenizer: ClassVar[type[Tokenizer]] = UnigramTokenizer
    model: ClassVar[str] = "unigram"

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        import sentencepiece

        counts = self.count_words(texts)
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([f"{word}\t{count}" for word, count in counts.items()]),
            input_format="tsv",
            model_writer=written,
            model_type=self.model,
            vocab_size=self.size(1 + len(set(itertools.chain.from_iterable(counts)))) + 2,
            # Fewer captions have fewer pieces.
            hard_vocab_limit=False,
            character_coverage=1.0,
            max_sentencepiece_length=_LONGEST,
            # Otherwise 's, a word of `split_words`, would be three pieces.
            split_by_unicode_script=False,
            # Words are cleaned already.
            normalization_rule_name="identity",
            # Numbers as in `Vocabulary`, and no pieces for the ends of a text.
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            # Sums of several threads may come in another order.
            num_threads=1,
            minloglevel=2,
        )
        learned = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
        numbers = range(2, learned.get_piece_size())
        pieces = [learned.id_to_piece(number) for number in numbers]
        # The score of BPE is its order.
        return Vocabulary(pieces, [learned.get_score(n) for n in numbers] if self.model == "unigram" else None)


@dataclass(frozen=True)
class BPE(SentencePiece, kind="bpe"):
    """Subwords of SentencePiece's byte-pair encoding."""

    tokenizer: ClassVar[type[Tokenizer]] = BPETokenizer
    model: ClassVar[str] = "bpe"
