"""Text as a sequence of characters, in graph."""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.parts import Size
from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.tokenizers import Tokenizer, TokenizerPart
from vsemb.text.vocabulary import Vocabulary

#: The known characters: every printable one of ASCII, upper case apart, 69 in all.
ALPHABET = string.ascii_lowercase + string.digits + string.punctuation + " "


def alphabet_vocabulary() -> Vocabulary:
    """Returns the vocabulary of `ALPHABET`.

    Example:

    >>> len(alphabet_vocabulary())
    71
    """
    return Vocabulary(ALPHABET)


class CharacterTokenizer(Tokenizer):
    """Splits text into lower-case characters and looks up their ids (0 padding, 1 unknown).

    White space of any kind and length is one space, none at the ends, and so is what is no valid UTF-8,
    as in `split_words`. Any other character that the vocabulary lacks, a letter of another script, an
    emoji, a combining mark, is one unknown character; a text of such characters alone is a text.

    Args:
        vocabulary: the known characters; None for `alphabet_vocabulary()`.
        max_length: longer texts are cut to so many characters (Reed et al. 2016: 201).

    Raises:
        InvalidArgumentError: for `max_length` < 1 or a vocabulary of more than characters.

    Example:

    >>> CharacterTokenizer()(["A  bee!", "é"]).numpy().tolist()
    [[2, 70, 3, 6, 6, 38], [1, 0, 0, 0, 0, 0]]
    """

    unit: ClassVar[tuple[str, str]] = ("character", "characters")

    def __init__(self, vocabulary: Vocabulary | None = None, max_length: int = 201) -> None:
        vocabulary = alphabet_vocabulary() if vocabulary is None else vocabulary
        for word in vocabulary.words:
            if len(word) != 1:
                raise invalid_argument("vocabulary", word, "single characters", "Take alphabet_vocabulary().")
        super().__init__(vocabulary, max_length)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(readable(texts), rf"[{WHITE_SPACE}\x{{FFFD}}]+", " ")
        texts = tf.strings.lower(tf.strings.strip(texts), encoding="utf-8")
        # Cut before it is split: every piece is a string of its own.
        texts = tf.strings.substr(texts, 0, self.max_length, unit="UTF8_CHAR")
        return tf.strings.unicode_split(texts, "UTF-8")


@dataclass(frozen=True)
class Characters(TokenizerPart, kind="characters"):
    """Lower-case characters of printable ASCII.

    Attributes:
        max_length: longer captions are cut to so many characters (Reed et al. 2016: 201).
    """

    max_length: Size = 201

    @property
    def length(self) -> int:
        return self.max_length

    def learn(self, texts: Iterable[str], dataset: Any = None) -> Vocabulary:
        del texts, dataset
        return alphabet_vocabulary()

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        return CharacterTokenizer(vocabulary, self.max_length)
