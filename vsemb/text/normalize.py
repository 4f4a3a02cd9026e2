"""Raw strings to words, with core TensorFlow string operations, which every TensorFlow Serving has.

Where TensorFlow is not installed, `words_of` applies the same regular expressions in Python.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from vsemb.ops.tensorflow import tf
from vsemb.text.composition import composed
from vsemb.unicode import MAX_BYTES, MAX_RAW_BYTES, require_unicode, shortened

__all__ = [
    "MAX_BYTES",
    "NOT_IN_WORDS",
    "WHITE_SPACE",
    "batches_of",
    "in_python",
    "is_in_words",
    "readable",
    "readable_in_python",
    "split_in_python",
    "split_words",
    "text_tensor",
    "words_of",
]

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
_SOFT_HYPHEN = "\u00ad"
#: Characters that end a word, as in the COCO caption evaluation, although they are marks: variation selectors and marks
#: that enclose a character. So 3 in a keycap is the word 3, and a red heart no word.
NOT_IN_WORDS = r"\x{20dd}-\x{20e0}\x{20e2}-\x{20e4}\x{488}-\x{489}\x{1abe}\x{a670}-\x{a672}"
NOT_IN_WORDS += r"\x{fe00}-\x{fe0f}\x{180b}-\x{180d}\x{180f}\x{e0100}-\x{e01ef}"
# Substitutions in lower-case text that leave its words, separated by spaces, in the syntax of RE2.
_SUBSTITUTIONS = (
    ("[\u2018\u2019]", "'"),
    (r"([\pL])'s\b", rf"\1 {_KEPT}s "),
    # Matches overlap in n'n'n, so a second pass is needed.
    *[(r"([\pL])'([\pL])", r"\1\2")] * 2,
    (rf"(?:[^\pL\pM\pN{_KEPT}]|[{NOT_IN_WORDS}])+", " "),
    (_KEPT, "'"),
)


def readable(texts: tf.Tensor) -> tf.Tensor:
    """Convert raw strings to valid UTF-8 in composed form (NFC), at most `MAX_BYTES`.

    White space at the start is removed, NUL becomes a space, and invalid UTF-8 becomes U+FFFD. Only the first 16 times
    `MAX_BYTES` are read. Canonically equal strings give the same result.

    Args:
        texts: (batch,) string.

    Returns:
        (batch,) string, valid UTF-8.

    Example:

    >>> readable(tf.constant([b"a\\x00dog"])).numpy().tolist()
    [b'a dog']
    """
    return _read(texts)


def _read(texts: tf.Tensor, soft_hyphens: bool = True) -> tf.Tensor:
    """Convert raw strings as `readable`, with or without soft hyphens, which are invisible in words."""
    texts = _cut(texts)
    # The transcoder is the slowest step and leaves ASCII unchanged.
    others = tf.where(~_is_short(texts, _ASCII))
    valid = tf.strings.unicode_transcode(tf.gather_nd(texts, others), "UTF-8", "UTF-8", errors="replace")
    valid = _whole(composed(valid))
    if not soft_hyphens:
        valid = tf.strings.regex_replace(valid, _SOFT_HYPHEN, "")
    texts = tf.tensor_scatter_nd_update(texts, others, valid)
    return tf.strings.regex_replace(texts, r"\x00", " ")  # `tf.strings.lower` truncates at NUL.


def _is_short(texts: tf.Tensor, pattern: str) -> tf.Tensor:
    """Return which strings match a pattern and have at most `MAX_BYTES`."""
    return tf.strings.regex_full_match(texts, pattern) & (tf.strings.length(texts) <= MAX_BYTES)


def _cut(texts: tf.Tensor) -> tf.Tensor:
    """Return at most `MAX_RAW_BYTES` of raw strings, without the white space at their start."""
    texts = tf.strings.substr(texts, 0, _MAX_BLANK)
    texts = tf.strings.regex_replace(texts, _BLANK_START, "", replace_global=False)
    return tf.strings.substr(texts, 0, MAX_RAW_BYTES)


def _whole(texts: tf.Tensor) -> tf.Tensor:
    """Cut strings of valid UTF-8 after at most `MAX_BYTES`, between two characters."""
    long = tf.where(tf.strings.length(texts) > MAX_BYTES)
    cut = tf.strings.substr(tf.gather_nd(texts, long), 0, MAX_BYTES)
    cut = tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", errors="ignore")
    return tf.tensor_scatter_nd_update(texts, long, cut)


def split_words(texts: tf.Tensor) -> tf.RaggedTensor:
    """Lower-case raw strings and split them into words.

    A word is a run of letters, marks and digits of any script, in composed form (NFC). Other characters separate words,
    also joiners, variation selectors and enclosing marks, as in the COCO caption evaluation. There are three
    exceptions: the English 's becomes its own word, as in the Penn treebank, other apostrophes inside a word are
    removed (don't: dont), and so are soft hyphens. Invalid UTF-8 separates words.

    Args:
        texts: (batch,) string.

    Returns:
        (batch, None) ragged string.

    Example:

    >>> split_words(tf.constant(["The man's dog, running!"])).to_list()
    [[b'the', b'man', b"'s", b'dog', b'running']]
    """
    texts = _cut(texts)
    is_plain = _is_short(texts, _PLAIN)
    plain = tf.strings.lower(tf.where(is_plain, texts, ""))
    plain = tf.strings.regex_replace(plain, "[^a-z0-9]+", " ")
    others = tf.where(~is_plain)
    words = tf.tensor_scatter_nd_update(plain, others, _spaced(tf.gather_nd(texts, others)))
    return tf.strings.split(words)


def batches_of(texts: Iterable[str]) -> Iterator[tf.Tensor]:
    """Yield texts as string tensors of a few thousand each; `texts` is read once."""
    remaining, first = iter(texts), 0
    while batch := list(itertools.islice(remaining, _BATCH)):
        yield text_tensor("texts", batch, first)
        first += len(batch)


def text_tensor(name: str, texts: Sequence[str], first: int = 0) -> tf.Tensor:
    """Convert texts to a string tensor.

    Args:
        name: name of the argument.
        texts: the texts.
        first: number of the first row, for the error.

    Raises:
        InvalidArgumentError: for a text with a lone surrogate; the error names its row.
    """
    try:
        return tf.constant(texts, tf.string)
    except Exception:
        # TensorFlow's types of error differ by version.
        require_unicode(name, texts, first)
        raise


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
    texts = tf.strings.lower(_read(texts, soft_hyphens=False), encoding="utf-8")
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
    text = readable_in_python(text).replace(_SOFT_HYPHEN, "").lower()
    if text.isascii() and "'" not in text:
        return re.findall("[a-z0-9]+", text)
    for pattern, replacement in _substitutions():
        text = pattern.sub(replacement, text)
    return text.split()


def is_in_words(character: str) -> bool:
    """Return whether a character is part of words: a letter, a mark or a digit, see `split_words`."""
    return unicodedata.category(character)[0] in "LMN" and not _separators().match(character)


@functools.cache
def _separators() -> re.Pattern[str]:
    return re.compile(f"[{in_python(NOT_IN_WORDS)}]")


def in_python(pattern: str) -> str:
    """Return a regular expression with the characters that RE2 writes as numbers."""
    return re.sub(r"\\x\{(\w+)\}", lambda code: re.escape(chr(int(code[1], 16))), pattern)


def readable_in_python(text: str) -> str:
    """Convert a raw string in Python, as `readable` in graph."""
    start = re.sub(r"^[\s\0]+", "", text.encode(errors="replace")[:_MAX_BLANK].decode(errors="replace"))
    return shortened(start).replace("\0", " ")


@functools.cache
def _substitutions() -> list[tuple[re.Pattern[str], str]]:
    """Compile `_SUBSTITUTIONS` for Python, whose expressions do not know categories of characters."""
    characters = map(chr, range(sys.maxunicode + 1))
    ranges = dict.fromkeys("LMN", "")
    for category, run in itertools.groupby(characters, lambda character: unicodedata.category(character)[0]):
        codes = list(run)
        if category in ranges:
            ranges[category] += f"{codes[0]}-{codes[-1]}"
    compiled = []
    for pattern, replacement in _SUBSTITUTIONS:
        for category, content in ranges.items():
            pattern = pattern.replace(rf"\p{category}", content)
        # `\b` is a boundary of ASCII in RE2.
        compiled.append((re.compile(in_python(pattern), re.ASCII), replacement))
    return compiled
