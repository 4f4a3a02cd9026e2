"""From raw strings to words, with core TensorFlow string operations only.

Core operations run on every TensorFlow Serving; those of tensorflow_text need a server built with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import tensorflow as tf

#: Longest text looked at, in bytes, behind white space at its start; the rest is cut.
MAX_BYTES = 4096

#: What counts as white space, as Python has it, inside the brackets of a regular expression.
WHITE_SPACE = r"\t-\r\x1c-\x20\x{85}\pZ"

# A text may begin with so many bytes of white space, so that megabytes of it cost nothing.
_MAX_BLANK = 16 * MAX_BYTES
_BLANK_START = rf"^[{WHITE_SPACE}\x00]+"

_ASCII = r"[\x00-\x7f]*"
# ASCII without NUL and the apostrophe, which most texts are: their words are runs of letters and digits.
_PLAIN = r"[\x01-&(-\x7f]*"

# Texts of a batch of `batches_of`.
_BATCH = 8192

# Stands for the apostrophe of 's while all others go; a private-use character, so no text needs it.
_KEPT = "\ue000"


def readable(texts: tf.Tensor) -> tf.Tensor:
    """Drops white space at the start, cuts raw strings to `MAX_BYTES`, replaces invalid UTF-8 by U+FFFD.

    NUL counts as white space and becomes a space. Only the first 16 times `MAX_BYTES` are looked at.

    Args:
        texts: (batch,) string.

    Returns:
        (batch,) string, valid UTF-8.

    Example:

    >>> readable(tf.constant([b"a\\x00dog"])).numpy().tolist()
    [b'a dog']
    """
    texts = _cut(texts)
    # The transcoder takes longer than all else here, and leaves ASCII as it is.
    others = tf.where(~tf.strings.regex_full_match(texts, _ASCII))
    valid = tf.strings.unicode_transcode(tf.gather_nd(texts, others), "UTF-8", "UTF-8", errors="replace")
    texts = tf.tensor_scatter_nd_update(texts, others, valid)
    return tf.strings.regex_replace(texts, r"\x00", " ")  # `tf.strings.lower` would end the text there.


def _cut(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.substr(texts, 0, _MAX_BLANK)
    texts = tf.strings.regex_replace(texts, _BLANK_START, "", replace_global=False)
    return tf.strings.substr(texts, 0, MAX_BYTES)


def readable_part(text: str) -> str:
    r"""Returns what of a raw text is parsed, where parsing is done in Python: `MAX_BYTES` at most, trimmed.

    Example:

    >>> readable_part(" a\x00dog ")
    'a dog'
    """
    # A parser takes NUL for a blank.
    text = text.replace("\0", " ").strip()
    return text.encode()[:MAX_BYTES].decode(errors="ignore").strip()


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Lower-cases and splits raw strings into words.

    Letters, marks and digits of any script make words; everything else separates them, apart from
    the English 's, which becomes a word of its own as in the Penn treebank, and other apostrophes
    within a word, which go without a gap (don't: dont). Invalid UTF-8 is
    replaced and then separates too.

    Args:
        texts: (batch,) string.

    Returns:
        (batch, None) ragged string.

    Example:

    >>> split_words(tf.constant(["The man's dog, running!"])).to_list()
    [[b'the', b'man', b"'s", b'dog', b'running']]
    """
    texts = _cut(texts)
    is_plain = tf.strings.regex_full_match(texts, _PLAIN)
    plain = tf.strings.lower(tf.where(is_plain, texts, ""))
    plain = tf.strings.regex_replace(plain, "[^a-z0-9]+", " ")
    others = tf.where(~is_plain)
    words = tf.tensor_scatter_nd_update(plain, others, _spaced(tf.gather_nd(texts, others)))
    return tf.strings.split(words)


def batches_of(texts: Iterable[str]) -> Iterator[tf.Tensor]:
    """Yields texts as string tensors of a few thousand each; `texts` is read once."""
    remaining = iter(texts)
    while batch := list(itertools.islice(remaining, _BATCH)):
        yield tf.constant(batch, tf.string)


def words_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Splits raw texts into words as `split_words` does, for use in Python.

    Args:
        texts: any number of them; read once, a few thousand at a time.

    Yields:
        The words of each text.

    Example:

    >>> list(words_of(["A dog's ball.", ""]))
    [['a', 'dog', "'s", 'ball'], []]
    """
    for batch in batches_of(texts):
        for words in split_words(batch).to_list():
            yield [word.decode() for word in words]


def _spaced(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases raw strings and puts blanks between their words; of ASCII without apostrophes too."""
    texts = tf.strings.lower(readable(texts), encoding="utf-8")
    texts = tf.strings.regex_replace(texts, "[\u2018\u2019]", "'")
    texts = tf.strings.regex_replace(texts, r"(\pL)'s\b", r"\1 " + _KEPT + "s ")
    for _ in range(2):  # A match ends behind its second letter, so that of n' in 'n' needs another pass.
        texts = tf.strings.regex_replace(texts, r"(\pL)'(\pL)", r"\1\2")
    texts = tf.strings.regex_replace(texts, rf"[^\pL\pM\pN{_KEPT}]+", " ")
    return tf.strings.regex_replace(texts, _KEPT, "'")
