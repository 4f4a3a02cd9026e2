"""Tokenizers: raw strings to ids, eagerly for training (`encode`) and padded in a served graph (`__call__`)."""

from __future__ import annotations

import functools
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from vsemb.errors import invalid_argument, printable
from vsemb.parts import Count, Part, Size, require
from vsemb.text.normalize import WHITE_SPACE, batches_of, readable, split_words
from vsemb.text.vocabulary import Vocabulary

#: The known characters: every printable one of ASCII, upper case apart, 69 in all.
ALPHABET = string.ascii_lowercase + string.digits + string.punctuation + " "


class Tokenizer(tf.Module):
    """Base of the tokenizers: splits text into pieces and looks up their ids (0 padding, 1 unknown).

    Args:
        vocabulary: the known pieces.
        max_length: longer texts are cut to so many pieces.
        lookup: whether ids are those of the words of `vocabulary`, which `table` looks up.

    Raises:
        InvalidArgumentError: for `max_length` < 1.
    """

    #: Shape of a token: () where it is an id, (2,) where it is an id and the place of its head.
    token_shape: ClassVar[tuple[int, ...]] = ()
    #: What a text is made of, in messages: one, and several.
    unit: ClassVar[tuple[str, str]] = ("word", "words")

    def __init__(self, vocabulary: Vocabulary, max_length: int = 64, *, lookup: bool = True) -> None:
        super().__init__()
        require("max_length", max_length, Count)
        self.vocabulary = vocabulary
        self.max_length = max_length
        if not lookup:
            return
        words = tf.constant(vocabulary.words or ("",), tf.string)
        ids = tf.range(2, 2 + tf.size(words))
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, ids), default_value=1)

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
        for batch in batches_of(texts):
            ragged = self.ragged(batch)
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

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return split_words(texts)[:, : self.max_length]


class CharacterTokenizer(Tokenizer):
    """Splits text into lower-case characters and looks up their ids (0 padding, 1 unknown).

    White space of any kind and length is one space, none at the ends, and so is what is no valid UTF-8,
    as in `split_words`. Any other character that the vocabulary lacks, a letter of another script, an
    emoji, a combining mark, is one unknown character; a text of such characters alone is a text.

    Args:
        vocabulary: the known characters; None for `Vocabulary(ALPHABET)`.
        max_length: longer texts are cut to so many characters (Reed et al. 2016: 201).

    Raises:
        InvalidArgumentError: for `max_length` < 1 or a vocabulary of more than characters.

    Example:

    >>> CharacterTokenizer()(["A  bee!", "é"]).numpy().tolist()
    [[2, 70, 3, 6, 6, 38], [1, 0, 0, 0, 0, 0]]
    """

    unit: ClassVar[tuple[str, str]] = ("character", "characters")

    def __init__(self, vocabulary: Vocabulary | None = None, max_length: int = 201) -> None:
        vocabulary = Vocabulary(ALPHABET) if vocabulary is None else vocabulary
        for word in vocabulary.words:
            if len(word) != 1:
                raise invalid_argument("vocabulary", word, "single characters", "Take Vocabulary(ALPHABET).")
        super().__init__(vocabulary, max_length)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(readable(texts), rf"[{WHITE_SPACE}\x{{FFFD}}]+", " ")
        texts = tf.strings.lower(tf.strings.strip(texts), encoding="utf-8")
        # Cut before it is split: every piece is a string of its own.
        texts = tf.strings.substr(texts, 0, self.max_length, unit="UTF8_CHAR")
        return tf.strings.unicode_split(texts, "UTF-8")


class TextReader:
    """Raw texts as a run's tokenizer takes them: most tokenizers take them as they are.

    Args:
        vocabulary: the run's vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __call__(self, raw: Sequence[str]) -> list[str]:
        """Returns texts that the tokenizer reads.

        Raises:
            DataError: if a text cannot be turned into what the tokenizer reads.
        """
        # The bytes of a command line that are not valid text come as halves of characters, which nothing encodes.
        return [printable(text) for text in raw]

    def knows(self, word: str) -> bool:
        """Whether a single word can be embedded."""
        return True

    @property
    def limits(self) -> str | None:
        """What people who type texts should know of those that cannot be read, a sentence; None where all can."""
        return None

    def check(self, texts: Sequence[str], run: Path) -> None:
        """Refuses texts of a split that the run cannot read.

        Args:
            texts: as `TokenizerPart.select` gives them.
            run: the run directory, for the error.

        Raises:
            DataError: naming the first.
        """


@dataclass(frozen=True)
class TokenizerPart(Part, family="tokenizer"):
    """How a recipe turns texts into token ids; base of the family `tokenizer`.

    Class attributes:
        tokenizer: class of the tokenizer.
        produces: what a token is: `ids`, or what the tokenizer of a system says, such as `trees`.
        whole_words: whether a token is a word, so that files of pretrained word vectors can be read.
        token_shape: shape of a token, see `Tokenizer.token_shape`.
        per_caption: whether `select` gives one text for each caption, in their order.
    """

    produces: ClassVar[str] = "ids"
    tokenizer: ClassVar[type[Tokenizer]]
    per_caption: ClassVar[bool] = True
    whole_words: ClassVar[bool] = False
    token_shape: ClassVar[tuple[int, ...]] = ()

    @property
    def length(self) -> int:
        """The most tokens of a text."""
        raise NotImplementedError

    def select(self, split: Any) -> Any:
        """Returns a split of a dataset with the texts that this tokenizer reads in place of its captions.

        Args:
            split: a `vsemb.data.store.Split`.

        Raises:
            DataError: if the dataset lacks them.
        """
        return split

    def describe(self, dataset: Any) -> dict[str, Any]:
        """Returns what `run.json` says of the texts of a dataset: fingerprints and sizes of annotations.

        Raises:
            DataError: if the dataset lacks what the tokenizer reads.
        """
        return {}

    def keep(self, dataset: Any, folder: Path) -> None:
        """Writes into a run directory what is needed later to read raw texts.

        Args:
            dataset: the dataset of the training.
            folder: the run directory, while it is made.
        """

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        """Returns the vocabulary of the training texts.

        Args:
            texts: the training texts, as `select` gives them.
            dataset: their dataset, where there is one.

        Raises:
            InvalidArgumentError: if they do not give a vocabulary.
        """
        raise NotImplementedError

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        """Returns the tokenizer."""
        return self.tokenizer(vocabulary, self.length)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TextReader:
        """Returns what turns raw texts into those that the tokenizer reads.

        Args:
            vocabulary: the run's vocabulary.
            run: the run directory.
        """
        return TextReader(vocabulary)

    def text_input(self, tokenizer: Any, reader: Any) -> Any:
        """Returns how texts come into a served model: the tokenizer itself where it reads raw strings.

        Args:
            tokenizer: what `build` returned.
            reader: what `reader` returned.

        Returns:
            The tokenizer, or a `vsemb.exporting.TextInput`.
        """
        return tokenizer


class WordReader(TextReader):
    """Raw texts of tokenizers that know a closed list of words."""

    def knows(self, word: str) -> bool:
        return word.lower() in self._words

    @functools.cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word.lower() for word in self.vocabulary.words)


@dataclass(frozen=True)
class LearnedVocabulary(TokenizerPart):
    """Base of the tokenizers whose vocabulary is learned from the words of the training captions.

    Attributes:
        min_count: words seen less often in the training captions are unknown.
        vocabulary_size: size limit of the vocabulary; null for all words.
        max_length: longer captions are cut to so many words.
    """

    min_count: Count = 1
    vocabulary_size: Count | None = None
    max_length: Size = 64

    @property
    def length(self) -> int:
        return self.max_length


@dataclass(frozen=True)
class Words(LearnedVocabulary, kind="words"):
    """Words, lower-cased, without punctuation."""

    whole_words: ClassVar[bool] = True
    tokenizer: ClassVar[type[Tokenizer]] = WordTokenizer

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        return Vocabulary.from_captions(texts, self.min_count, self.vocabulary_size)

    def reader(self, vocabulary: Vocabulary, run: Path) -> TextReader:
        return WordReader(vocabulary)


@dataclass(frozen=True)
class Characters(TokenizerPart, kind="characters"):
    """Lower-case characters of printable ASCII.

    Attributes:
        max_length: longer captions are cut to so many characters (Reed et al. 2016: 201).
    """

    tokenizer: ClassVar[type[Tokenizer]] = CharacterTokenizer

    max_length: Size = 201

    @property
    def length(self) -> int:
        return self.max_length

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        return Vocabulary(ALPHABET)
