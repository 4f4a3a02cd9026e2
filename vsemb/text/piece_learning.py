"""Learning the pieces of words from captions: WordPiece, and the unigram and BPE models of SentencePiece.

All learn from how often each word is seen, words being those of `split_words`: the same captions give the
same pieces, in whatever order they come.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vsemb.errors import InvalidArgumentError, invalid_argument, unknown_name
from vsemb.parts import Count, Size
from vsemb.text.subwords import BEGINS, CONTINUES, MAX_CHARACTERS, BPETokenizer, UnigramTokenizer, WordPieceTokenizer
from vsemb.text.tokenizers import Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary, count_words

#: How many pieces are learned where nothing is said: about half of the words of Flickr8k's captions.
PIECES = 4000

#: Models of SentencePiece.
MODELS = ("unigram", "bpe")

# A piece is no longer; TensorFlow Text's default is 50, and SentencePiece's 16.
_LONGEST = 16


def learn_wordpieces(captions: Iterable[str], min_count: int = 1, vocabulary_size: int | None = None) -> Vocabulary:
    """Learns WordPiece's pieces with TensorFlow Text.

    Args:
        captions: raw captions of the training split; read once.
        min_count: pieces are learned from the words seen so often.
        vocabulary_size: how many pieces are kept at most; None for 4000. All characters are among them, each to
            begin a word and to continue one.

    Returns:
        The pieces for `vsemb.text.WordPieceTokenizer`.

    Raises:
        InvalidArgumentError: for fewer pieces than characters.
        DataError: if no word is left.

    Example:

    >>> vocabulary = learn_wordpieces(["walking dogs", "walking", "talking"] * 20, vocabulary_size=40)
    >>> "##s" in vocabulary, len(vocabulary.words) <= 40
    (True, True)
    """
    # Only here, since it takes a second and serving does without.
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    size, counts = _checked(vocabulary_size), _word_counts(captions, min_count)
    characters = {character for word in counts for character in word}
    alphabet = sorted(characters) + sorted(CONTINUES + character for character in characters)
    if len(alphabet) > size:
        raise _too_few(size, len(alphabet))
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


def learn_sentencepieces(
    model: str, captions: Iterable[str], min_count: int = 1, vocabulary_size: int | None = None
) -> Vocabulary:
    """Learns SentencePiece's pieces.

    Args:
        model: `"unigram"` or `"bpe"`.
        captions: raw captions of the training split; read once.
        min_count: pieces are learned from the words seen so often.
        vocabulary_size: how many pieces are kept at most; None for 4000. All characters are among them.

    Returns:
        The pieces for `vsemb.text.UnigramTokenizer`, with their scores, or for `vsemb.text.BPETokenizer`.

    Raises:
        InvalidArgumentError: for another model, or fewer pieces than characters.
        DataError: if no word is left.

    Example:

    >>> vocabulary = learn_sentencepieces("unigram", ["walking dogs"] * 20, vocabulary_size=40)
    >>> len(vocabulary.words) <= 40, len(vocabulary.scores) == len(vocabulary.words)
    (True, True)
    """
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    import sentencepiece

    size, counts = _checked(vocabulary_size), _word_counts(captions, min_count)
    characters = {BEGINS, *(character for word in counts for character in word)}
    if len(characters) > size:
        raise _too_few(size, len(characters))
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"{word}\t{count}" for word, count in counts.items()]),
        input_format="tsv",
        model_writer=written,
        model_type=model,
        vocab_size=size + 2,
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
    return Vocabulary(pieces, [learned.get_score(n) for n in numbers] if model == "unigram" else None)


def _checked(vocabulary_size: int | None) -> int:
    if vocabulary_size is not None and vocabulary_size < 1:
        raise invalid_argument("vocabulary_size", vocabulary_size, "an integer >= 1, or None")
    return PIECES if vocabulary_size is None else vocabulary_size


def _word_counts(captions: Iterable[str], min_count: int) -> dict[str, int]:
    counts = count_words(captions, min_count)
    # Longer words are never split.
    return {word: count for word, count in counts.items() if len(word) <= MAX_CHARACTERS} or counts


def _too_few(size: int, characters: int) -> InvalidArgumentError:
    fix = "Every character is a subword. Raise it, or min_count, which leaves rare words' characters out."
    return invalid_argument("vocabulary_size", size, f"an integer >= {characters}", fix)


@dataclass(frozen=True)
class Subwords(TokenizerPart):
    """Base of the recipe parts whose tokenizer learns subwords from the training captions.

    Attributes:
        min_count: words seen less often in the training captions teach no subwords.
        vocabulary_size: number of subwords; null for 4000.
        max_length: longer captions are cut to so many subwords.
    """

    min_count: Count = 1
    vocabulary_size: Count | None = None
    max_length: Size = 64

    @property
    def length(self) -> int:
        return self.max_length


@dataclass(frozen=True)
class WordPiece(Subwords, kind="wordpiece"):
    """WordPiece subwords, learned by TensorFlow Text."""

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        return learn_wordpieces(texts, self.min_count, self.vocabulary_size)

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        return WordPieceTokenizer(vocabulary, self.max_length)


@dataclass(frozen=True)
class SentencePiece(Subwords, kind="sentencepiece"):
    """Subwords of SentencePiece's unigram model."""

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        return learn_sentencepieces("unigram", texts, self.min_count, self.vocabulary_size)

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        return UnigramTokenizer(vocabulary, self.max_length)


@dataclass(frozen=True)
class BPE(Subwords, kind="bpe"):
    """Subwords of SentencePiece's byte-pair encoding."""

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        return learn_sentencepieces("bpe", texts, self.min_count, self.vocabulary_size)

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        return BPETokenizer(vocabulary, self.max_length)
