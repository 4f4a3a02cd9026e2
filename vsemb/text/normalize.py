"""Raw strings to words, with core TensorFlow string operations, which every TensorFlow Serving has.

Where TensorFlow is not installed, `words_of` applies the same regular expressions in Python.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator

from vsemb.ops.tensorflow import tf

#: Maximum bytes read of a text, after white space at its start.
MAX_BYTES = 4096

#: Python's white space, as the content of a character class of a regular expression.
WHITE_SPACE = r"\t-\r\x1c-\x20\x{85}\pZ"

# Maximum bytes of white space at the start of a text, which bounds the work per text.
_MAX_BLANK = 16 * MAX_BYTES
_BLANK_START = rf"^[{WHITE_SPACE}\x00]+"

_ASCII = r"[\x00-\x7f]*"
# ASCII without NUL and apostrophe, the common case: words are runs of letters and digits.
_PLAIN = r"[\x01-&(-\x7f]*"

# Texts per batch of `batches_of`.
_BATCH = 8192

# Placeholder for the apostrophe of 's while others are removed; a private-use character.
_KEPT = "\ue000"
# Substitutions in lower-case text that leave its words, separated by spaces, in the syntax of RE2.
_SUBSTITUTIONS = (
    ("[\u2018\u2019]", "'"),
    (r"([\pL])'s\b", rf"\1 {_KEPT}s "),
    # Matches overlap in n'n'n, so a second pass is needed.
    *[(r"([\pL])'([\pL])", r"\1\2")] * 2,
    (rf"[^\pL\pM\pN{_KEPT}]+", " "),
    (_KEPT, "'"),
)


def readable(texts: tf.Tensor) -> tf.Tensor:
    """Convert raw strings to valid UTF-8 of at most `MAX_BYTES`.

    White space at the start is removed, NUL becomes a space, and invalid UTF-8 becomes U+FFFD. Only the first 16 times
    `MAX_BYTES` are read.

    Args:
        texts: (batch,) string.

    Returns:
        (batch,) string, valid UTF-8.

    Example:

    >>> readable(tf.constant([b"a\\x00dog"])).numpy().tolist()
    [b'a dog']
    """
    texts = _cut(texts)
    # The transcoder is the slowest step and leaves ASCII unchanged.
    others = tf.where(~tf.strings.regex_full_match(texts, _ASCII))
    valid = tf.strings.unicode_transcode(tf.gather_nd(texts, others), "UTF-8", "UTF-8", errors="replace")
    texts = tf.tensor_scatter_nd_update(texts, others, valid)
    return tf.strings.regex_replace(texts, r"\x00", " ")  # `tf.strings.lower` truncates at NUL.


def _cut(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.substr(texts, 0, _MAX_BLANK)
    texts = tf.strings.regex_replace(texts, _BLANK_START, "", replace_global=False)
    return tf.strings.substr(texts, 0, MAX_BYTES)


def readable_part(text: str) -> str:
    r"""Return the part of a raw text that a parser in Python reads: at most `MAX_BYTES`, trimmed.

    Example:

    >>> readable_part(" a\x00dog ")
    'a dog'
    """
    # Parsers treat NUL as a space.
    text = text.replace("\0", " ").strip()
    return text.encode()[:MAX_BYTES].decode(errors="ignore").strip()


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Lower-case raw strings and split them into words.

    A word is a run of letters, marks and digits of any script. Other characters separate words, with two exceptions:
    the English 's becomes its own word, as in the Penn treebank, and other apostrophes inside a word are removed
    (don't: dont). Invalid UTF-8 separates words.

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
    """Yield texts as string tensors of a few thousand each; `texts` is read once."""
    remaining = iter(texts)
    while batch := list(itertools.islice(remaining, _BATCH)):
        yield tf.constant(batch, tf.string)


def words_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split raw texts into lists of words, as `split_words` does in graph.

    Args:
        texts: any number of raw texts; read once, a few thousand at a time.

    Yields:
        The words of each text.

    Example:

    >>> list(words_of(["A dog's ball.", ""]))
    [['a', 'dog', "'s", 'ball'], []]
    """
    if not tf:
        yield from map(split_in_python, texts)
        return
    for batch in batches_of(texts):
        for words in split_words(batch).to_list():
            yield [word.decode() for word in words]


def _spaced(texts: tf.Tensor) -> tf.Tensor:
    """Lower-case raw strings and put spaces between their words."""
    texts = tf.strings.lower(readable(texts), encoding="utf-8")
    for pattern, replacement in _SUBSTITUTIONS:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return texts


def split_in_python(text: str) -> list[str]:
    """Split a raw text into words in Python, as `split_words` in graph.

    Letters that are only in Python's or only in TensorFlow's version of Unicode can differ.

    Example:

    >>> split_in_python("The man's dog, running!")
    ['the', 'man', "'s", 'dog', 'running']
    """
    text = readable_in_python(text).lower()
    if text.isascii() and "'" not in text:
        return re.findall("[a-z0-9]+", text)
    for pattern, replacement in _substitutions():
        text = pattern.sub(replacement, text)
    return text.split()


def readable_in_python(text: str) -> str:
    """Convert a raw string in Python, as `readable` in graph."""
    start = re.sub(r"^[\s\0]+", "", text.encode(errors="replace")[:_MAX_BLANK].decode(errors="replace"))
    text = start.encode()[:MAX_BYTES].decode(errors="replace")
    return text.replace("\0", " ")


@functools.cache
def _substitutions() -> list[tuple[re.Pattern[str], str]]:
    """Compile `_SUBSTITUTIONS` for Python, whose expressions do not know categories of characters."""
    ranges: dict[str, str] = {}
    for category, found in itertools.groupby(
        range(sys.maxunicode + 1), lambda code: unicodedata.category(chr(code))[0]
    ):
        first, *rest = found
        ranges[category] = ranges.get(category, "") + f"{chr(first)}-{chr(rest[-1] if rest else first)}"
    compiled = []
    for pattern, replacement in _SUBSTITUTIONS:
        for category in "LMN":
            pattern = pattern.replace(rf"\p{category}", ranges[category])
        # `\b` is a boundary of ASCII in RE2.
        compiled.append((re.compile(pattern, re.ASCII), replacement))
    return compiled
