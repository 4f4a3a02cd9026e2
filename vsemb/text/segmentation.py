"""Segmentation of words into subwords, in graph and with core operations.

Unigram models by dynamic programming over the letters of a word, as the sentencepiece library does it (Kudo 2018,
arXiv:1804.10959, section 3.2). Byte-pair encoding by merging neighbours (Sennrich et al. 2016, arXiv:1508.07909).
WordPiece by the longest match (Wu et al. 2016, arXiv:1609.08144).
Every TensorFlow Serving has the core operations; tensorflow_text needs a custom build.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vsemb.ops.tensorflow import tf

#: Rank of neighbours that are never merged.
NEVER = np.iinfo(np.int32).max


def segment_distinct(words: tf.RaggedTensor, segment: Callable[[tf.Tensor], tf.RaggedTensor]) -> tf.RaggedTensor:
    """Segment each distinct word of a batch once.

    Args:
        words: (batch, None) ragged string.
        segment: words (n,) -> subwords (n, None) ragged.

    Returns:
        (batch, None) ragged, the subwords of all words of a row.
    """
    distinct, places = tf.unique(words.flat_values, tf.int64)
    return words.with_values(tf.gather(segment(distinct), places)).merge_dims(1, 2)


def merge_neighbours(
    symbols: tf.Tensor, join: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
) -> tf.Tensor:
    """Merge the neighbours of lowest rank in each word, leftmost first, until none can be merged.

    Args:
        symbols: (n, steps) string or int, padded on the right with "" or 0.
        join: left and right neighbours, (n, steps) each -> merged symbols and their int32 rank, `NEVER` for pairs
            that cannot be merged.

    Returns:
        (n, steps), padded likewise.
    """
    places = tf.range(tf.shape(symbols)[1])

    def neighbours(symbols: tf.Tensor) -> tuple[tf.Tensor, ...]:
        after = tf.pad(symbols[:, 1:], [[0, 0], [0, 1]])
        return symbols, after, *join(symbols, after)

    def step(symbols: tf.Tensor, after: tf.Tensor, joined: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, ...]:
        mergeable = tf.reduce_any(ranks < NEVER, axis=1)
        chosen = tf.where(mergeable, tf.argmin(ranks, axis=1, output_type=tf.int32), tf.size(places))[:, None]
        return neighbours(tf.where(places < chosen, symbols, tf.where(places == chosen, joined, after)))

    symbols, *_ = tf.while_loop(
        lambda symbols, after, joined, ranks: tf.reduce_any(ranks < NEVER),
        step,
        neighbours(symbols),
        shape_invariants=(tf.TensorShape([None, None]),) * 4,
    )
    return symbols


def unigram_pieces(
    words: tf.Tensor, counts: tf.Tensor, table: tf.lookup.StaticHashTable, scores: tf.Tensor, longest: int, unknown: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Find the most probable segmentation of words under a unigram model.

    Args:
        words: (n,) string.
        counts: (n,) int32, number of letters to segment, from the start of each word.
        table: subword -> id, 0 or 1 for other strings.
        scores: (ids,) float32, log probability of each subword; -inf for id 0.
        longest: letters of the longest subword.
        unknown: id of a letter outside the vocabulary.

    Returns:
        texts: (n, steps) string, in column e the subword that ends with letter e.
        ids: (n, steps) int32, its id; 0 if no subword of the segmentation ends with the letter.
        letters: (n, steps) string, the letters.
    """
    texts, there = substrings(words, counts, longest)
    ids = table.lookup(texts)
    ids = tf.where(ids > 1, ids, tf.one_hot(0, longest, unknown, 0))
    ids = tf.where(there, ids, 0)
    lengths, ends = likeliest(tf.gather(scores, ids), counts)
    best, ids = (tf.gather(values, lengths - 1, batch_dims=2) for values in (texts, ids))
    return best, tf.where(ends, ids, 0), texts[:, :, 0]


def substrings(words: tf.Tensor, counts: tf.Tensor, longest: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the substrings of 1 to `longest` letters that end with each letter of words.

    Args:
        words: (n,) string.
        counts: (n,) int32, number of letters to read, from the start of each word.
        longest: letters of the longest subword.

    Returns:
        (n, steps, longest) string, and bool of the same shape: whether the substring lies within these letters. Steps
        are the letters of the longest word plus one.

    Example:

    >>> texts, there = substrings(tf.constant(["año"]), tf.constant([3]), 2)
    >>> [text.decode() for text in tf.boolean_mask(texts, there).numpy()]
    ['a', 'ñ', 'añ', 'o', 'ño']
    """
    sizes = tf.range(1, longest + 1)
    # One step more, so that there is at least one.
    ends = tf.range(1, tf.reduce_max(tf.concat([counts, [0]], axis=0)) + 2)[:, None]
    there = (ends >= sizes) & (ends <= counts[:, None, None])
    # `substr` takes matrices only.
    flat = tf.stack([tf.shape(there)[0], tf.shape(there)[1] * longest])
    starts, sizes = (tf.reshape(tf.where(there, value, 0), flat) for value in (ends - sizes, sizes))
    texts = tf.strings.substr(words[:, None], starts, sizes, unit="UTF8_CHAR")
    return tf.reshape(texts, tf.shape(there)), there


def likeliest(scores: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the segmentation of each word with the largest sum of scores.

    Ties go to the longer last subword, as in the library.

    Args:
        scores: (n, steps, longest) float32; [i, e, l] is the score of the subword of l + 1 letters that ends with
            letter e of word i, -inf if there is none. Every single letter has a score.
        counts: (n,) int32, the letters of each word.

    Returns:
        lengths: (n, steps) int32, length of the last subword of the best segmentation up to each letter.
        ends: (n, steps) bool, whether a subword of the whole word's segmentation ends with the letter.

    Example: "ab" is more probable than "a" and "b".

    >>> scores = tf.constant([[[-1.0, -np.inf], [-1.0, -1.5]]])
    >>> lengths, ends = likeliest(scores, tf.constant([2]))
    >>> lengths.numpy().tolist(), ends.numpy().tolist()
    ([[1, 2]], [[False, True]])
    """
    rows, steps, longest = tf.shape(scores)[0], tf.shape(scores)[1], scores.shape[2]
    first = tf.concat([tf.zeros((rows, 1)), tf.fill((rows, longest - 1), -np.inf)], axis=1)

    def extended(end: tf.Tensor, before: tf.Tensor, written: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        # `before[:, l]` is the best score of the letters up to `end - 1 - l`.
        totals = before + scores[:, end]
        length = longest - tf.argmax(totals[:, ::-1], axis=1, output_type=tf.int32)
        before = tf.concat([tf.reduce_max(totals, axis=1, keepdims=True), before[:, :-1]], axis=1)
        return end + 1, before, written.write(end, length)

    _, _, written = tf.while_loop(
        lambda end, *_: end < steps,
        extended,
        (tf.constant(0), first, tf.TensorArray(tf.int32, steps, element_shape=[None])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None]), tf.TensorShape(None)),
    )
    lengths = tf.transpose(written.stack())

    def followed(end: tf.Tensor, at: tf.Tensor, written: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        here = tf.equal(at, end)
        return end - 1, tf.where(here, end - lengths[:, end - 1], at), written.write(end - 1, here)

    _, _, written = tf.while_loop(
        lambda end, *_: end > 0,
        followed,
        (steps, counts, tf.TensorArray(tf.bool, steps, element_shape=[None])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape(None)),
    )
    return lengths, tf.transpose(written.stack())


def longest_pieces(
    words: tf.Tensor, table: tf.lookup.StaticHashTable, longest: int, prefix: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Split words into the longest known subwords from left to right.

    Args:
        words: (n,) string.
        table: subword -> id, 0 or 1 for other strings.
        longest: letters of the longest subword, without `prefix`.
        prefix: begins subwords that continue a word.

    Returns:
        texts: (n, steps) string, the subwords, padded on the right with "".
        ids: (n, steps) int32, their ids; 0 or 1 for padding.
        fits: (n,) bool, whether the subwords cover the word.

    Example:

    >>> keys = tf.lookup.KeyValueTensorInitializer(["run", "##s"], tf.constant([2, 3]))
    >>> texts, _, fits = longest_pieces(tf.constant(["runs", "ran"]), tf.lookup.StaticHashTable(keys, 0), 3, "##")
    >>> texts.numpy().tolist(), fits.numpy().tolist()
    ([[b'run', b'##s'], [b'', b'']], [True, False])
    """
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    sizes = tf.range(longest, 0, -1)

    def next_piece(step: tf.Tensor, start: tf.Tensor, fits: tf.Tensor, texts: Any, ids: Any) -> Any:
        left = lengths - start
        # Substrings beyond the end of a word do not exist.
        starts = tf.tile(tf.minimum(start, lengths)[:, None], [1, longest])
        candidates = tf.strings.substr(words[:, None], starts, tf.zeros_like(starts) + sizes, unit="UTF8_CHAR")
        candidates = tf.where(start[:, None] > 0, prefix + candidates, candidates)
        numbers = table.lookup(candidates)
        known = (numbers > 1) & (sizes <= left[:, None])
        best = tf.argmax(known, axis=1)  # The first of those known, the longest.
        known = tf.reduce_any(known, axis=1)
        text = tf.where(known, tf.gather(candidates, best, axis=1, batch_dims=1), "")
        number = tf.where(known, tf.gather(numbers, best, axis=1, batch_dims=1), 0)
        # A word without a match is finished.
        start += tf.where(known, tf.gather(sizes, best), left)
        return step + 1, start, fits & (known | (left == 0)), texts.write(step, text), ids.write(step, number)

    written = [tf.TensorArray(kind, 0, dynamic_size=True, element_shape=words.shape) for kind in (tf.string, tf.int32)]
    _, _, fits, *written = tf.while_loop(
        # At least once, since an empty array cannot be stacked.
        lambda step, start, *_: (step == 0) | tf.reduce_any(start < lengths),
        next_piece,
        [0, tf.zeros_like(lengths), lengths >= 0, *written],
    )
    texts, ids = (tf.transpose(array.stack()) for array in written)
    return texts, ids, fits
