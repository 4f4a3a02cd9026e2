"""Tokenizers: raw strings to token ids, in memory for training (`encode`), padded in a served graph (`__call__`)."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np

from vsemb.errors import DataError, VsembError, invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, Part, Size, require
from vsemb.text.normalize import WHITE_SPACE, batches_of, readable, readable_in_python, split_in_python, split_words
from vsemb.text.spaces import NO_WORDS, SUBWORDS
from vsemb.text.tokenizer_json import characters_json, words_json
from vsemb.text.vocabulary import UNKNOWN_ID, Vocabulary
from vsemb.text.word_vectors import further_words
from vsemb.unicode import composed, require_unicode

if TYPE_CHECKING:
    from vsemb.data.store import Split, StoredDataset
    from vsemb.exporting.served_inputs import TextInput

#: The tokenizer that composes words of parts, see `vsemb.text.ngrams.NGrams`.
NGRAMS = "text.tokenizer=ngrams"

#: The known characters: the 69 printable characters of ASCII without upper case.
ALPHABET = string.ascii_lowercase + string.digits + string.punctuation + " "


class Tokenizer(tf.Module):
    """Split texts into tokens and look up their ids (0 padding, 1 unknown); base of the tokenizers.

    A `vsemb.models.DualEncoder` with a tokenizer takes raw strings, and saves it with the model.

    Args:
        vocabulary: the known tokens.
        max_length: longer texts are truncated to this many tokens.
        lookup: whether to build `table`, the lookup of the words of `vocabulary`.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    #: Shape of a token: () for an id, (2,) for an id and the position of its head.
    token_shape: ClassVar[tuple[int, ...]] = ()
    #: Name of a token in messages, singular and plural.
    unit: ClassVar[tuple[str, str]] = ("word", "words")
    #: Text between two tokens of a sentence.
    between: ClassVar[str] = " "

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64, *, lookup: bool = True) -> None:
        super().__init__()
        require("max_length", max_length, Count)
        if not isinstance(vocabulary, Vocabulary):
            raise invalid_argument("vocabulary", vocabulary, "a vsemb.text.Vocabulary, such as Vocabulary(words)")
        self.vocabulary = vocabulary
        self.max_length = max_length
        if not lookup or not tf:
            return
        known = vocabulary.ids or {"": UNKNOWN_ID}
        words, ids = tf.constant(list(known), tf.string), tf.constant(list(known.values()), tf.int32)
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, ids), default_value=1)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable("vsemb")(cls)

    def get_config(self) -> dict[str, Any]:
        """Return the vocabulary and the length as plain values.

        Raises:
            VsembError: for a tokenizer that is made of something else.
        """
        try:
            inspect.signature(type(self).__init__).bind(self, self.vocabulary, self.max_length)
        except TypeError as error:
            message = f"A {type(self).__name__} cannot be saved with a Keras model. Save the model without tokenizer."
            raise VsembError(message) from error
        scores = self.vocabulary.scores
        return {
            "words": list(self.vocabulary.words),
            "scores": None if scores is None else scores.tolist(),
            "max_length": self.max_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the tokenizer again from the return value of `get_config`."""
        options = {name: value for name, value in config.items() if name not in ("words", "scores")}
        return cls(Vocabulary(config["words"], config["scores"]), **options)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts: (batch,) string -> (batch, None) ragged string, at most `max_length` tokens per row."""
        raise NotImplementedError

    def ragged(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize without padding: (batch,) string -> (batch, None) ragged int32."""
        pieces = self._checked_pieces(texts)
        return pieces.with_flat_values(self.table.lookup(pieces.flat_values))

    def _checked_pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.convert_to_tensor(texts)
        if texts.shape.rank not in (None, 1):
            raise invalid_argument("texts", f"shape {tuple(texts.shape)}", "a list or vector of strings, (batch,)")
        return self.pieces(texts)

    def split(self, text: str) -> list[str]:
        """Split a text as `pieces` does, in Python, for training where TensorFlow is not installed."""
        fix = "Without TensorFlow, train with text.tokenizer=words or characters."
        raise VsembError(f"A {type(self).__name__} must have TensorFlow, which is not installed. {fix}")

    def token(self, word: str) -> Any:
        """Look up the token of a piece in Python: int, or a list of the length of `token_shape`."""
        return self.vocabulary.ids.get(word, UNKNOWN_ID)

    def word_ids(self, ids: np.ndarray) -> np.ndarray:
        """Return the id part of tokens: (...) + `token_shape` -> (...) int32."""
        return ids[..., 0] if self.token_shape else ids

    def is_known(self, ids: Any) -> Any:
        """Return which tokens are in the vocabulary.

        Args:
            ids: (...) + `token_shape` int, as `__call__` gives them.

        Returns:
            (...) bool; False for padding and for the unknown token.
        """
        return self.word_ids(ids) > UNKNOWN_ID

    def is_whole(self, ids: Any) -> Any:
        """Return which tokens are known as a whole; the other known tokens are composed of known parts.

        Args:
            ids: as for `is_known`.

        Returns:
            (...) bool.
        """
        return self.is_known(ids)

    def grams_of_words(self) -> np.ndarray | None:
        """Return the n-grams of each word, (len(vocabulary), n) int32; None for tokens that are single ids."""
        return None

    def to_tokenizer_json(self) -> dict[str, Any] | None:
        """Return the tokenizer as `tokenizer.json` of the library tokenizers; None if that format cannot hold it."""
        return None

    @property
    def ngrams(self) -> dict[str, Any] | None:
        """Arguments of `vsemb.exporting.formats.encode.ngram_ids`; None for tokens that are single ids."""
        return None

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Tokenize texts and pad on the right.

        Args:
            texts: (batch,) string.

        Returns:
            (batch, steps) + `token_shape` int32; steps is the length of the longest text, at least 1.
        """
        return self._padded(self.ragged(texts))

    def _padded(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        dense = tokens.to_tensor()
        missing = tf.maximum(1 - tf.shape(dense)[1], 0)
        return tf.pad(dense, [[0, 0], [0, missing], *[[0, 0]] * len(self.token_shape)])

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize texts in memory.

        Args:
            texts: any number of raw texts.

        Returns:
            ids: (tokens,) + `token_shape` int32, the concatenated texts.
            offsets: (texts + 1,) int64; text i is `ids[offsets[i]:offsets[i + 1]]`.
        """
        if not tf:
            require_unicode("texts", texts)
            rows = [self.split(text) for text in texts]
            ids = np.array([self.token(word) for word in itertools.chain.from_iterable(rows)], np.int32)
            return ids.reshape(-1, *self.token_shape), np.cumsum([0, *map(len, rows)])
        parts, lengths = [], [np.zeros(1, np.int64)]
        for batch in batches_of(texts):
            ragged = self.ragged(batch)
            parts.append(ragged.flat_values.numpy())
            lengths.append(ragged.row_lengths().numpy())
        ids = np.concatenate(parts) if parts else np.zeros((0, *self.token_shape), np.int32)
        return ids, np.cumsum(np.concatenate(lengths))


class WordTokenizer(Tokenizer):
    """Split texts into lower-case words and look up their ids (0 padding, 1 unknown).

    Args:
        vocabulary: the known words.
        max_length: longer texts are truncated to this many words.

    Raises:
        InvalidArgumentError: for `max_length` < 1.

    Example:

    >>> tokenizer = WordTokenizer(Vocabulary(["a", "dog"]))
    >>> tokenizer(["A dog!", "a zebra and a dog"]).numpy().tolist()
    [[2, 3, 0, 0, 0], [2, 1, 1, 2, 3]]
    """

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return split_words(texts)[:, : self.max_length]

    def split(self, text: str) -> list[str]:
        return split_in_python(text)[: self.max_length]

    def to_tokenizer_json(self) -> dict[str, Any]:
        return words_json(self.vocabulary, self.max_length)


class CharacterTokenizer(Tokenizer):
    """Split texts into lower-case characters and look up their ids (0 padding, 1 unknown).

    A run of white space or invalid UTF-8 becomes one space; spaces at both ends are removed. Each other character
    outside the vocabulary, such as a letter of another script, an emoji or a combining mark, is one unknown character.

    Args:
        vocabulary: the known characters; None for `Vocabulary(ALPHABET)`.
        max_length: longer texts are truncated to this many characters (Reed et al. 2016: 201).

    Raises:
        InvalidArgumentError: for `max_length` < 1, or a vocabulary entry longer than one character.

    Example:

    >>> CharacterTokenizer()(["A  bee!", "é"]).numpy().tolist()
    [[2, 70, 3, 6, 6, 38], [1, 0, 0, 0, 0, 0]]
    """

    unit: ClassVar[tuple[str, str]] = ("character", "characters")
    between: ClassVar[str] = ""

    def __init__(self, vocabulary: Vocabulary | None = None, max_length: int = 201) -> None:
        vocabulary = Vocabulary(ALPHABET) if vocabulary is None else vocabulary
        for word in vocabulary.words:
            if len(word) != 1:
                raise invalid_argument("vocabulary", word, "single characters", "Use Vocabulary(ALPHABET).")
        super().__init__(vocabulary, max_length)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(readable(texts), rf"[{WHITE_SPACE}\x{{FFFD}}]+", " ")
        texts = tf.strings.lower(tf.strings.strip(texts), encoding="utf-8")
        # Truncated before the split, which allocates a string per character.
        texts = tf.strings.substr(texts, 0, self.max_length, unit="UTF8_CHAR")
        return tf.strings.unicode_split(texts, "UTF-8")

    def split(self, text: str) -> list[str]:
        return list(re.sub(r"[\s\ufffd]+", " ", readable_in_python(text)).strip(" ").lower()[: self.max_length])

    def to_tokenizer_json(self) -> dict[str, Any]:
        return characters_json(self.vocabulary, self.max_length)


class TextReader:
    """Convert raw texts to the input of a run's tokenizer; unchanged for most tokenizers.

    Args:
        vocabulary: the run's vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __call__(self, raw: Sequence[str]) -> list[str]:
        """Return texts that the tokenizer reads.

        Raises:
            InvalidArgumentError: for a text with a lone surrogate.
            DataError: if a text cannot be converted.
        """
        require_unicode("texts", raw)
        return list(raw)

    def knows(self, word: str) -> bool:
        """Return whether a single word can be embedded."""
        return True

    @property
    def limits(self) -> str | None:
        """A sentence about texts that cannot be read, for people who type queries; None if all can be read."""
        return None

    def check(self, texts: Sequence[str], run: Path) -> None:
        """Check that the run can read the texts of a split.

        Args:
            texts: as `TokenizerPart.select` gives them.
            run: the run directory, for the error.

        Raises:
            DataError: for the first unreadable text.
        """


@dataclass(frozen=True)
class TokenizerPart(Part, family="tokenizer"):
    """Recipe part that turns texts into token ids; base of the family `tokenizer`.

    Class attributes:
        tokenizer: class of the tokenizer.
        produces: kind of a token: `ids`, or a kind of a system, such as `trees`.
        whole_words: whether a token is a word, as pretrained word vectors require.
        token_shape: shape of a token, see `Tokenizer.token_shape`.
        per_caption: whether `select` returns one text per caption, in their order.
    """

    produces: ClassVar[str] = "ids"
    tokenizer: ClassVar[type[Tokenizer]]
    per_caption: ClassVar[bool] = True
    whole_words: ClassVar[bool] = False
    token_shape: ClassVar[tuple[int, ...]] = ()

    @property
    def ngram_buckets(self) -> int:
        """Number of vectors for n-grams of words; 0 for tokens that are single ids."""
        return 0

    @property
    def length(self) -> int:
        """Maximum number of tokens per text."""
        raise NotImplementedError

    @property
    def vectors_file(self) -> str | None:
        """File of word vectors whose words are in the vocabulary, which the encoder must read; None for no file."""
        return None

    @property
    def remedies(self) -> dict[str, str]:
        """Assignments to fields of a recipe that make more tokens known -> their effect."""
        return {}

    def select(self, split: Split) -> Split:
        """Return a split of a dataset with this tokenizer's texts in place of the captions.

        Args:
            split: the split.

        Raises:
            DataError: if the dataset lacks them.
        """
        return split

    def describe(self, dataset: StoredDataset) -> dict[str, Any]:
        """Return the entries of `run.json` about a dataset's texts: fingerprints and sizes of annotations.

        Raises:
            DataError: if the dataset lacks the annotations that the tokenizer reads.
        """
        return {}

    def keep(self, dataset: StoredDataset, folder: Path) -> None:
        """Write the files for reading raw texts into a run directory.

        Args:
            dataset: the dataset of the training.
            folder: the run directory, before it is published.
        """

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        """Learn the vocabulary of the training texts.

        Args:
            texts: the training texts, as returned by `select`.
            dataset: their dataset, if any.

        Raises:
            InvalidArgumentError: if no vocabulary can be learned from them.
        """
        raise NotImplementedError

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        """Build the tokenizer."""
        return self.tokenizer(vocabulary, self.length)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TextReader:
        """Return the reader of raw texts.

        Args:
            vocabulary: the run's vocabulary.
            run: the run directory.
        """
        return TextReader(vocabulary)

    def text_input(self, tokenizer: Tokenizer, reader: TextReader) -> Tokenizer | TextInput:
        """Return the text input of a served model: the tokenizer itself if it reads raw strings.

        Args:
            tokenizer: the result of `build`.
            reader: the result of `reader`.

        Returns:
            The tokenizer, or a `vsemb.exporting.TextInput`.
        """
        return tokenizer


class WordReader(TextReader):
    """Raw texts of tokenizers with a closed vocabulary of words."""

    def knows(self, word: str) -> bool:
        return composed(word).lower() in self._words

    @functools.cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(composed(word).lower() for word in self.vocabulary.words)


@dataclass(frozen=True)
class LearnedVocabulary(TokenizerPart):
    """Base of the tokenizers that learn their vocabulary from the words of the training captions.

    Attributes:
        min_count: rarer words of the training captions are unknown.
        vocabulary_size: maximum size of the vocabulary; null for all words.
        max_length: longer captions are truncated to this many words.
    """

    min_count: Count = 1
    vocabulary_size: Count | None = None
    max_length: Size = 64

    @property
    def length(self) -> int:
        return self.max_length

    @property
    def remedies(self) -> dict[str, str]:
        return {"text.tokenizer.min_count=1": "keeps rare words"} if self.min_count > 1 else {}


@dataclass(frozen=True)
class Words(LearnedVocabulary, kind="words"):
    """Lower-case words without punctuation.

    Attributes:
        words_of: file of word vectors whose words are added to the words of the captions, the file of
            `text.encoder.words.vectors`; null for none.
        most_added: maximum number of added words, the first of the file.
    """

    words_of: str | None = None
    most_added: Count = 20_000

    whole_words: ClassVar[bool] = True
    tokenizer: ClassVar[type[Tokenizer]] = WordTokenizer

    @property
    def remedies(self) -> dict[str, str]:
        remedies = super().remedies
        if self.vocabulary_size is not None:
            remedies["text.tokenizer.vocabulary_size=null"] = "keeps all words"
        return {**remedies, NGRAMS: "composes rare words", SUBWORDS: "splits them"}

    @property
    def vectors_file(self) -> str | None:
        return self.words_of

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        vocabulary = Vocabulary.from_captions(texts, self.min_count, self.vocabulary_size)
        if self.words_of is None:
            return vocabulary
        added = further_words(self.words_of, vocabulary, self.most_added)
        extended = Vocabulary([*vocabulary.words, *added])
        extended.seen = vocabulary.seen
        return extended

    def reader(self, vocabulary: Vocabulary, run: Path) -> TextReader:
        return WordReader(vocabulary)


@dataclass(frozen=True)
class Characters(TokenizerPart, kind="characters"):
    """Lower-case characters of printable ASCII.

    Attributes:
        max_length: longer captions are truncated to this many characters (Reed et al. 2016: 201).
    """

    tokenizer: ClassVar[type[Tokenizer]] = CharacterTokenizer

    max_length: Size = 201

    @property
    def length(self) -> int:
        return self.max_length

    @property
    def remedies(self) -> dict[str, str]:
        return {SUBWORDS: "reads other letters than those of ASCII"}

    def learn(self, texts: Iterable[str], dataset: StoredDataset | None = None) -> Vocabulary:
        known, text, letters = set(ALPHABET) - {" "}, None, False
        for text in texts:
            if not known.isdisjoint(text.lower()):
                break
            letters = letters or any(map(str.isalnum, text))
        else:
            if text is not None:
                fix = f"Read other letters by {SUBWORDS}." if letters else NO_WORDS
                raise DataError(f"Captions must have characters of ASCII; got none in all of them. {fix}")
        return Vocabulary(ALPHABET)
