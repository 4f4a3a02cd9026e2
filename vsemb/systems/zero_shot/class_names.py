"""A class's name as one token, for encoders that know classes by what is stored of them."""

from __future__ import annotations

import tensorflow as tf

from vsemb.text.normalize import WHITE_SPACE, readable
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary


class ClassTokenizer(Tokenizer):
    """Looks up the whole text, trimmed, as the name of a class (0 no name, 1 unknown class).

    Case counts, as it does in the names of a dataset.

    Args:
        vocabulary: the names.

    Example:

    >>> tokenizer = ClassTokenizer(Vocabulary(["Blue Jay", "Crow"]))
    >>> tokenizer([" Crow", "Blue Jay", "blue jay", ""]).numpy().tolist()
    [[3], [2], [1], [0]]
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, max_length=1)

    def pieces(self, texts: tf.Tensor) -> tf.RaggedTensor:
        names = tf.strings.regex_replace(readable(texts), rf"^[{WHITE_SPACE}]+|[{WHITE_SPACE}]+$", "")
        named = tf.not_equal(names, "")
        return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(names, named), tf.cast(named, tf.int64))
