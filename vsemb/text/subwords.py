"""Subwords learned from captions: WordPiece, and the unigram and BPE models of SentencePiece.

TensorFlow Text and SentencePiece learn the subwords from counts of words (`split_words`), so the order of the captions
does not matter. Segmentation runs in graph with core operations, so a SavedModel needs no tokenizer library. Tests
compare it with these libraries.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.text.normalize import split_words
from vsemb.text.segmentation import NEVER, longest_pieces, merge_neighbours, segment_distinct, unigram_pieces
from vsemb.text.tokenizer_json import bpe_json, unigram_json, wordpiece_json
from vsemb.text.tokenizers import LearnedVocabulary, Tokenizer
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary, count_words

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

#: Default number of subwords: about half the number of words in Flickr8k's captions.
SUBWORDS = 4000

#: Prefix of a subword that continues a word (WordPiece).
CONTINUES = "##"

#: Prefix of a subword that begins a word (SentencePiece).
BEGINS = "\u2581"

#: A longer word is one unknown subword, which bounds the work per text.
MAX_CHARACTERS = 100

# The score of an unknown character is the lowest score minus this, as in SentencePiece.
_PENALTY = 10.0

# Maximum characters per subword of SentencePiece; for TensorFlow Text it is `MAX_CHARACTERS`.
_LONGEST = 16


class SubwordTokenizer(Tokenizer):
    """Split the words of `split_words` into subwords; base of the subword tokenizers.

    Texts are lower-cased without punctuation, as in `WordTokenizer`. A subword never spans two words. A word of more
    than `MAX_CHARACTERS` characters is one unknown subword.

    Args:
        vocabulary: the known subwords.
        max_length: longer texts are truncated to this many subwords.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    #: Added in front of a word before it is split.
    prefix: ClassVar[str] = ""

    unit: ClassVar[tuple[str, str]] = ("subword", "subwords")

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64) -> None:
        super().__init__(vocabulary, max_length)
        #: Characters of the longest subword.
        self.longest = max((len(self.surface(word)) for word in vocabulary.words), default=1)

    def surface(self, piece: str) -> str:
        """Return the characters of a prefixed word that a subword covers."""
        return piece

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into subwords.

        Args:
            words: (n,) string, `prefix` and 1 to `MAX_CHARACTERS` characters each.

        Returns:
            (n, None) ragged string, at least one subword per row.
        """
        raise NotImplementedError

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        # A word has at least one subword.
        words = split_words(texts)[:, : self.max_length]
        return segment_distinct(words, self._segment_short)[:, : self.max_length]

    def _segment_short(self, words: tf.Tensor) -> tf.RaggedTensor:
        long = tf.strings.length(words, unit="UTF8_CHAR") > MAX_CHARACTERS
        split = self.segment(self.prefix + tf.boolean_mask(words, ~long))
        whole = tf.RaggedTensor.from_tensor(tf.boolean_mask(words, long)[:, None])
        order = tf.concat([tf.where(~long), tf.where(long)], axis=0)[:, 0]
        return tf.gather(tf.concat([split, whole], axis=0), tf.math.invert_permutation(order))


class WordPieceTokenizer(SubwordTokenizer):
    """Split each word into the longest known subwords from left to right (0 padding, 1 unknown).

    A subword that continues a word begins with `##`. A word that cannot be covered is one unknown subword.

    Args:
        vocabulary: the known subwords, see `WordPiece`.
        max_length: longer texts are truncated to this many subwords.

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
        pieces, _, fits = longest_pieces(words, self.table, self.longest, CONTINUES)
        whole = tf.pad(words[:, None], [[0, 0], [0, tf.shape(pieces)[1] - 1]])
        pieces = tf.where(fits[:, None], pieces, whole)
        return tf.ragged.boolean_mask(pieces, tf.not_equal(pieces, ""))

    def to_tokenizer_json(self) -> dict[str, Any]:
        return wordpiece_json(self.vocabulary, self.max_length, CONTINUES, MAX_CHARACTERS)


class UnigramTokenizer(SubwordTokenizer):
    """Split each word into its most probable subwords: SentencePiece's unigram model (0 padding, 1 unknown).

    The probability of a segmentation is the product of the probabilities of its subwords. A subword that begins a word
    begins with U+2581 ("▁"). Consecutive unknown characters are one unknown subword.

    Args:
        vocabulary: the known subwords and their log probabilities, see `vsemb.text.subwords.SentencePiece`.
        max_length: longer texts are truncated to this many subwords.

    Raises:
        InvalidArgumentError: for `max_length` < 1, or a vocabulary without scores.

    Example: "dogs" becomes "dog" and "s", since 0.2 times 0.1 is more than 0.01.

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
            raise invalid_argument("vocabulary", vocabulary.words[:3], "subwords with scores", fix)
        super().__init__(vocabulary, max_length)
        unknown = np.min(vocabulary.scores, initial=0.0) - _PENALTY
        self.scores = np.concatenate([[-np.inf, unknown], vocabulary.scores]).astype(np.float32)

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        counts = tf.strings.length(words, unit="UTF8_CHAR")
        pieces, ids, _ = unigram_pieces(words, counts, self.table, self.scores, self.longest, UNKNOWN_ID)
        return _unknown_joined(tf.ragged.boolean_mask(pieces, ids > 0), self.table)

    def to_tokenizer_json(self) -> dict[str, Any]:
        return unigram_json(self.vocabulary, self.max_length, self.prefix)


class BPETokenizer(SubwordTokenizer):
    """Merge the characters of each word to subwords: byte-pair encoding (0 padding, 1 unknown).

    Each step merges the neighbours whose merged subword comes first in the vocabulary; ties go to the leftmost. The
    first character of a word is U+2581 ("▁"). Consecutive unknown characters are one unknown subword.

    Args:
        vocabulary: the known subwords in the order in which they were learned, see
            `vsemb.text.subwords.SentencePiece`.
        max_length: longer texts are truncated to this many subwords.

    Raises:
        InvalidArgumentError: for `max_length` < 1.

    Example:

    >>> tokenizer = BPETokenizer(Vocabulary(["do", "▁do", "gs", "▁", "d", "o", "g", "s"]))
    >>> [piece.decode() for piece in tokenizer.pieces(tf.constant(["Dogs!"])).flat_values.numpy()]
    ['▁do', 'gs']

    References:
        Sennrich et al. Neural Machine Translation of Rare Words with Subword Units. ACL 2016,
        arXiv:1508.07909. The merge order is SentencePiece's.
    """

    prefix = BEGINS

    def segment(self, words: tf.Tensor) -> tf.RaggedTensor:
        def join(left: tf.Tensor, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            pairs = left + right
            ids = self.table.lookup(pairs)
            return pairs, tf.where((ids > UNKNOWN_ID) & tf.not_equal(right, ""), ids, NEVER)

        symbols = merge_neighbours(tf.strings.unicode_split(words, "UTF-8").to_tensor(""), join)
        return _unknown_joined(tf.ragged.boolean_mask(symbols, tf.not_equal(symbols, "")), self.table)

    def to_tokenizer_json(self) -> dict[str, Any]:
        return bpe_json(self.vocabulary, self.max_length, self.prefix)


def _unknown_joined(pieces: tf.RaggedTensor, table: Any) -> tf.RaggedTensor:
    """Join consecutive unknown subwords of a word: (n, None) ragged string."""
    unknown, rows = table.lookup(pieces.flat_values) == UNKNOWN_ID, pieces.value_rowids()
    same = (rows[1:] == rows[:-1]) & unknown[1:] & unknown[:-1]
    begins = tf.concat([tf.ones_like(unknown[:1]), ~same], axis=0)
    numbers = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    joined = tf.strings.unsorted_segment_join(pieces.flat_values, numbers, tf.reduce_sum(tf.cast(begins, tf.int32)))
    return tf.RaggedTensor.from_value_rowids(joined, tf.boolean_mask(rows, begins), pieces.nrows())


@dataclass(frozen=True)
class Subwords(LearnedVocabulary):
    """Base of the recipe parts that learn subwords from the training captions.

    Attributes:
        min_count: rarer words of the training captions are ignored while learning.
        vocabulary_size: maximum number of subwords, single characters included; null for 4000.
        max_length: longer captions are truncated to this many subwords.
    """

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the words to learn from, of at most `MAX_CHARACTERS` characters each.

        Raises:
            DataError: if no word is left.
        """
        counts = count_words(texts, self.min_count)
        short = {word: count for word, count in counts.items() if len(word) <= MAX_CHARACTERS}
        return short or counts

    def size(self, characters: int) -> int:
        """Return the number of subwords to learn.

        Args:
            characters: number of subwords for single characters.

        Raises:
            InvalidArgumentError: if `vocabulary_size` is smaller.
        """
        size = self.vocabulary_size or SUBWORDS
        if characters > size:
            fix = "Every character is a subword. Raise vocabulary_size, or min_count to drop rare characters."
            raise invalid_argument("vocabulary_size", size, f"an integer >= {characters}", fix)
        return size


@dataclass(frozen=True)
class WordPiece(Subwords, kind="wordpiece"):
    """WordPiece subwords, learned by TensorFlow Text, with two per character: beginning and continuing a word.

    Example:

    >>> vocabulary = WordPiece(vocabulary_size=40).learn(["walking dogs", "walking", "talking"] * 20)
    >>> "##s" in vocabulary, len(vocabulary.words) <= 40
    (True, True)
    """

    tokenizer: ClassVar[type[Tokenizer]] = WordPieceTokenizer

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        # The import takes a second, and serving does not need it.
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

        counts = self.count_words(texts)
        characters = sorted(set(itertools.chain.from_iterable(counts)))
        alphabet = characters + [CONTINUES + character for character in characters]
        size = self.size(len(alphabet))
        learned = learner.learn(
            list(counts.items()),
            size,
            reserved_tokens=[],
            # The defaults drop rare words.
            lower_thresh=1,
            max_unique_chars=len(characters),
            max_token_length=MAX_CHARACTERS,
            joiner=CONTINUES,
        )
        # The learner may exceed the size; then the rarest go, except single characters.
        kept = set(alphabet)
        longer = [piece for piece in learned if piece not in kept]
        return Vocabulary(alphabet + longer[: size - len(alphabet)])


@dataclass(frozen=True)
class SentencePiece(Subwords, kind="sentencepiece"):
    """Subwords of SentencePiece's unigram model.

    Class attributes:
        model: SentencePiece's name of the model: `unigram`, with scores, or `bpe`.

    Example:

    >>> vocabulary = SentencePiece(vocabulary_size=40).learn(["walking dogs"] * 20)
    >>> len(vocabulary.words) <= 40, len(vocabulary.scores) == len(vocabulary.words)
    (True, True)
    """

    tokenizer: ClassVar[type[Tokenizer]] = UnigramTokenizer
    model: ClassVar[str] = "unigram"

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        import sentencepiece

        counts = self.count_words(texts)
        characters = set(itertools.chain.from_iterable(counts))
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([f"{word}\t{count}" for word, count in counts.items()]),
            input_format="tsv",
            model_writer=written,
            model_type=self.model,
            vocab_size=self.size(1 + len(characters)) + 2,
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
        if self.model == "bpe":  # Its score is the order.
            return Vocabulary(pieces)
        return Vocabulary(pieces, [learned.get_score(number) for number in numbers])


@dataclass(frozen=True)
class BPE(SentencePiece, kind="bpe"):
    """Subwords of SentencePiece's byte-pair encoding."""

    tokenizer: ClassVar[type[Tokenizer]] = BPETokenizer
    model: ClassVar[str] = "bpe"
