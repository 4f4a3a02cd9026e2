"""Canonical composition (Unicode normalization form C) in graph, with core operations.

TensorFlow has it in tensorflow_text only, which TensorFlow Serving lacks. The tables come from Python's `unicodedata`
and go into the graph: about 50 KB.

References:
    Unicode Standard Annex #15, Unicode Normalization Forms.
    The Unicode Standard, section 3.11 (composition) and 3.12 (Hangul).
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsemb.ops.tensorflow import tf

# First syllable, leading consonant, vowel and trailing consonant of Hangul, and their numbers.
_SYLLABLE, _LEADING, _VOWEL, _TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7
_SYLLABLES, _LEADINGS, _VOWELS, _TRAILINGS = 11172, 19, 21, 28
# Makes one number of a pair of code points.
_PLANES = 1 << 21
# No code point from here on has a decomposition or a combining class.
_END = 0x30000
# No composite is made of more characters.
_LONGEST = 4
# The class of a character that a mark at the start of a text cannot be combined with.
_BLOCKED = 256


@dataclass(frozen=True)
class _Tables:
    """Properties of code points; all sorted by code point, without Hangul.

    Attributes:
        codes: (n,) int32, code points with a decomposition.
        starts: (n + 1,) int32; the decomposition of `codes[i]` is `parts[starts[i]:starts[i + 1]]`.
        parts: code points of the full decompositions, int32.
        marks: (m,) int32, code points whose combining class is not 0.
        classes: (m,) int32, their combining classes.
        pairs: (p,) int64, the first and second code point of each primary composite, sorted.
        composites: (p,) int32, the composites.
        seconds: sorted int32, second code points of pairs whose combining class is 0.
        unsettled: regular expression of texts that composition may change.
    """

    codes: np.ndarray
    starts: np.ndarray
    parts: np.ndarray
    marks: np.ndarray
    classes: np.ndarray
    pairs: np.ndarray
    composites: np.ndarray
    seconds: np.ndarray
    unsettled: str


def composed(texts: tf.Tensor) -> tf.Tensor:
    r"""Compose texts canonically: Unicode normalization form C, as `unicodedata.normalize("NFC", text)`.

    Args:
        texts: (batch,) string, valid UTF-8.

    Returns:
        (batch,) string.

    Example:

    >>> composed(tf.constant(["cafe\u0301", "dog"])).numpy().tolist()
    [b'caf\xc3\xa9', b'dog']
    """
    rows = tf.where(tf.strings.regex_full_match(texts, _tables().unsettled))

    def changed() -> tf.Tensor:
        return tf.tensor_scatter_nd_update(texts, rows, _composed(tf.gather_nd(texts, rows)))

    return tf.cond(tf.size(rows) > 0, changed, lambda: tf.identity(texts))


# Traced once, also where several signatures call it.
@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _composed(texts: tf.Tensor) -> tf.Tensor:
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    codes = _recomposed(*_ordered(*_decomposed(codes.flat_values, codes.value_rowids())), codes.nrows())
    return tf.strings.unicode_encode(codes, "UTF-8")


def _decomposed(codes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Replace code points by their canonical decompositions: (n,) int32 code points and int64 rows."""
    tables = _tables()
    place, listed = _find(tables.codes, codes)
    starts = tf.gather(tables.starts, place)
    syllable = codes - _SYLLABLE
    hangul = (syllable >= 0) & (syllable < _SYLLABLES)
    trailing = syllable % _TRAILINGS
    sizes = tf.where(listed, tf.gather(tables.starts, place + 1) - starts, 1)
    sizes = tf.where(hangul, tf.where(trailing > 0, 3, 2), sizes)
    # Of each new code point: the number of the old one, and its place in the decomposition.
    source = tf.repeat(tf.range(tf.size(codes)), sizes)
    places = tf.range(tf.size(source)) - tf.gather(tf.cumsum(sizes, exclusive=True), source)

    def of(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, source)

    parts = tf.gather(tables.parts, tf.where(of(listed), of(starts) + places, 0))
    letters = tf.stack(
        [
            _LEADING + syllable // (_VOWELS * _TRAILINGS),
            _VOWEL + syllable % (_VOWELS * _TRAILINGS) // _TRAILINGS,
            _TRAILING + trailing,
        ],
        axis=1,
    )
    letters = tf.gather(of(letters), tf.minimum(places, 2), batch_dims=1)
    return tf.where(of(hangul), letters, tf.where(of(listed), parts, of(codes))), of(rows)


def _ordered(codes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sort consecutive marks by their combining classes; marks of one class keep their order."""
    # A run is a starter with its marks. A mark at the start of a row is a run without starter.
    classes = _class_of(codes)
    begins = tf.equal(classes, 0) | _first_of(rows)
    keys = tf.cumsum(tf.cast(begins, tf.int64)) * _BLOCKED + tf.cast(classes, tf.int64)
    ordered = tf.reduce_all(keys[1:] >= keys[:-1])
    return tf.cond(ordered, lambda: tf.identity(codes), lambda: tf.gather(codes, tf.argsort(keys, stable=True))), rows


def _recomposed(codes: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.RaggedTensor:
    """Compose decomposed and ordered code points; return them by row, (count, None).

    The code points are cut into segments that cannot be composed with each other. Step k of the loop handles code point
    k of every segment, so the number of steps is the length of the longest segment.
    """
    classes = _class_of(codes)
    opening = (tf.equal(classes, 0) & ~_is_second(codes)) | _first_of(rows)
    changes = opening[1:] | tf.not_equal(classes[1:], classes[:-1])
    # After `_LONGEST` characters of one class in a row, one of them was not composed, and blocks the others.
    blocked = _places(tf.concat([opening[:1], changes], axis=0)) >= _LONGEST
    kept = _true(tf.equal(classes, 0) | ~blocked)
    begins = tf.gather(opening | blocked & tf.equal(classes, 0), kept)
    starts = _true(begins)
    sizes = tf.concat([starts[1:], tf.size(kept, tf.int64)[None]], axis=0) - starts
    several = _true(sizes > 1)
    starts, sizes = tf.gather(starts, several), tf.gather(sizes, several)
    first = tf.gather(kept, starts)
    last = tf.where(tf.gather(classes, first) > 0, _BLOCKED, 0)

    def step(place: tf.Tensor, segments: tuple[tf.Tensor, ...], written: tuple[tf.TensorArray, ...]) -> tuple[Any, ...]:
        starts, sizes, starters, starter, last = segments
        here = tf.gather(kept, starts + place)
        code, own = tf.gather(codes, here), tf.gather(classes, here)
        composite = _composite(starter, code)
        # A mark of the same or a higher class in between blocks; so does any starter.
        composes = (composite > 0) & ((last < own) | tf.equal(last, 0))
        starter = tf.where(composes, composite, starter)
        opens = tf.equal(own, 0) & ~composes
        done = opens | tf.equal(sizes, place + 1)
        merged, finished = _true(composes), _true(done)
        places = [tf.gather(here, merged), tf.gather(starters, finished)]
        values = [tf.fill(tf.shape(merged), -1), tf.gather(starter, finished)]
        index = tf.cast(place, tf.int32) - 1
        all_places, all_values = written
        written = (
            all_places.write(index, tf.concat(places, axis=0)),
            all_values.write(index, tf.concat(values, axis=0)),
        )
        starters, starter = tf.where(opens, here, starters), tf.where(opens, code, starter)
        segments = (starts, sizes, starters, starter, tf.where(composes, last, own))
        longer = _true(sizes > place + 1)
        return place + 1, tuple(tf.gather(values, longer) for values in segments), written

    segments = (starts, sizes, first, tf.gather(codes, first), last)
    written = tuple(
        tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False, element_shape=[None])
        for dtype in (tf.int64, tf.int32)
    )
    vectors = (tf.TensorShape([None]),) * len(segments)
    _, _, (places, values) = tf.while_loop(
        lambda place, segments, _: tf.size(segments[0]) > 0,
        step,
        (tf.constant(1, tf.int64), segments, written),
        shape_invariants=(tf.TensorShape([]), vectors, (tf.TensorShape(None),) * 2),
    )
    codes = tf.tensor_scatter_nd_update(codes, places.concat()[:, None], values.concat())
    there = _true(codes >= 0)
    return tf.RaggedTensor.from_value_rowids(tf.gather(codes, there), tf.gather(rows, there), count, validate=False)


def _true(mask: tf.Tensor) -> tf.Tensor:
    """Return the places of true values: (n,) bool -> int64. `tf.boolean_mask` takes ten times the operations."""
    return tf.squeeze(tf.where(mask), 1)


def _places(begins: tf.Tensor) -> tf.Tensor:
    """Return the place of each value in its run: (n,) bool, whether a run begins -> (n,) int64."""
    runs = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    return tf.range(tf.size(runs, tf.int64)) - tf.gather(_true(begins), runs)


def _composite(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Return the primary composite of pairs of code points; 0 without one."""
    tables = _tables()
    place, listed = _find(tables.pairs, tf.cast(first, tf.int64) * _PLANES + tf.cast(second, tf.int64))
    composite = tf.where(listed, tf.gather(tables.composites, place), 0)
    leading, vowel = first - _LEADING, second - _VOWEL
    opens = (leading >= 0) & (leading < _LEADINGS) & (vowel >= 0) & (vowel < _VOWELS)
    composite = tf.where(opens, _SYLLABLE + (leading * _VOWELS + vowel) * _TRAILINGS, composite)
    syllable, trailing = first - _SYLLABLE, second - _TRAILING
    closes = (syllable >= 0) & (syllable < _SYLLABLES) & tf.equal(syllable % _TRAILINGS, 0)
    closes &= (trailing > 0) & (trailing < _TRAILINGS)
    return tf.where(closes, first + trailing, composite)


def _is_second(codes: tf.Tensor) -> tf.Tensor:
    _, listed = _find(_tables().seconds, codes)
    vowel, trailing = codes - _VOWEL, codes - _TRAILING
    return listed | ((vowel >= 0) & (vowel < _VOWELS)) | ((trailing > 0) & (trailing < _TRAILINGS))


def _class_of(codes: tf.Tensor) -> tf.Tensor:
    tables = _tables()
    place, listed = _find(tables.marks, codes)
    return tf.where(listed, tf.gather(tables.classes, place), 0)


def _first_of(rows: tf.Tensor) -> tf.Tensor:
    return tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] > rows[:-1]], axis=0)


def _find(table: np.ndarray, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the places of values in a sorted table, and whether they are there."""
    # `tf.searchsorted` adds shapes for tables of several rows.
    place = tf.raw_ops.LowerBound(sorted_inputs=table[None], values=values[None], out_type=tf.int32)
    place = tf.minimum(tf.squeeze(place, 0), len(table) - 1)
    return place, tf.equal(tf.gather(table, place), values)


@functools.cache
def _tables() -> _Tables:
    decompositions: dict[int, list[int]] = {}
    composites: dict[int, int] = {}
    marks: dict[int, int] = {}
    changing = []
    for code in range(0xC0, _END):
        letter = chr(code)
        if unicodedata.combining(letter):
            marks[code] = unicodedata.combining(letter)
        decomposition = unicodedata.decomposition(letter)
        if not decomposition or decomposition.startswith("<"):
            continue
        decompositions[code] = [ord(part) for part in unicodedata.normalize("NFD", letter)]
        if unicodedata.normalize("NFC", letter) == letter:
            first, second = (int(part, 16) for part in decomposition.split())
            composites[first * _PLANES + second] = code
        else:
            changing.append(code)
    pairs = sorted(composites)
    firsts = {pair // _PLANES for pair in pairs} | set(range(_LEADING, _LEADING + _LEADINGS))
    seconds = {pair % _PLANES for pair in pairs}
    hangul = {*range(_VOWEL, _VOWEL + _VOWELS), *range(_TRAILING + 1, _TRAILING + _TRAILINGS)}
    followers = _ranges({*marks, *seconds, *hangul} - set(changing))
    # A composite is the first of a pair, too: its own mark may come behind the next one.
    syllables = set(range(_SYLLABLE, _SYLLABLE + _SYLLABLES))
    preceding = _ranges((firsts | syllables | set(composites.values())) - set(changing))
    alternatives = f"[{_ranges(changing)}]|[{followers}][{followers}]|[{preceding}][{_ranges(seconds | hangul)}]"

    def numbers(values: Collection[int], dtype: type = np.int32) -> np.ndarray:
        return np.array(list(values), dtype)

    sizes = [len(parts) for parts in decompositions.values()]
    return _Tables(
        codes=numbers(decompositions),
        starts=np.cumsum([0, *sizes]).astype(np.int32),
        parts=numbers([part for parts in decompositions.values() for part in parts]),
        marks=numbers(marks),
        classes=numbers(marks.values()),
        pairs=numbers(pairs, np.int64),
        composites=numbers([composites[pair] for pair in pairs]),
        seconds=numbers(sorted(code for code in seconds if code not in marks)),
        unsettled=rf"(?s).*(?:{alternatives}).*",
    )


def _ranges(codes: Collection[int]) -> str:
    """Return code points as the content of a character class of RE2."""
    ordered = sorted(codes)
    starts = [code for before, code in zip([-2, *ordered], ordered, strict=False) if code > before + 1]
    ends = [code for code, after in zip(ordered, [*ordered[1:], _END + 1], strict=True) if after > code + 1]
    return "".join(rf"\x{{{start:x}}}-\x{{{end:x}}}" for start, end in zip(starts, ends, strict=True))
