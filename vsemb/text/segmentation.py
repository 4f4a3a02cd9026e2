"""Segmentation of words into subwords, in graph and with core operations.

Unigram models by dynamic programming over the letters of a word, as the sentencepiece library does it (Kudo 2018,
arXiv:1804.10959, section 3.2), and byte-pair encoding by merging neighbours (Sennrich et al. 2016, arXiv:1508.07909).
Core operations run on every TensorFlow Serving; those of tensorflow_text need a server built with it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

#: Rank of neighbours that are not joined.
NEVER = np.iinfo(np.int32).max


def segment_distinct(words: tf.RaggedTensor, segment: Callable[[tf.Tensor], tf.RaggedTensor]) -> tf.RaggedTensor:
    """Segments each distinct word of a batch once.

    Args:
        words: (batch, None) ragged string.
        segment: from words (n,) to the subwords of each, (n, None) ragged.

    Returns:
        (batch, None) ragged, the subwords of all words of a row.
    """
    distinct, places = tf.unique(words.flat_values, tf.int64)
    return words.with_values(tf.gather(segment(distinct), places)).merge_dims(1, 2)


def merge_neighbours(
    symbols: tf.Tensor, join: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
) -> tf.Tensor:
    """Joins the neighbours of lowest rank in each word, the leftmost first, until none is left.

    Args:
        symbols: (n, steps) string or int, with "" or 0 behind the symbols of a word.
        join: from left and right neighbours, (n, steps) each, to what they are together, and their int32 rank.

    Returns:
        (n, steps), of the same form.
    """
    places = tf.range(tf.shape(symbols)[1])

    def neighbours(symbols: tf.Tensor) -> tuple[tf.Tensor, ...]:
        after = tf.pad(symbols[:, 1:], [[0, 0], [0, 1]])
        return symbols, after, *join(symbols, after)

    def step(symbols: tf.Tensor, after: tf.Tensor, joined: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, ...]:
        found = tf.reduce_any(ranks < NEVER, axis=1)
        chosen = tf.where(found, tf.argmin(ranks, axis=1, output_type=tf.int32), tf.size(places))[:, None]
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
    """Finds the likeliest segmentation of words under a unigram model.

    Args:
        words: (n,) string.
        counts: (n,) int32, how many of its first letters are segmented.
        table: piece -> id, 0 or 1 for other strings.
        scores: (ids,) float32, the logarithm of each piece's probability; -inf for id 0.
        longest: letters of the longest piece.
        unknown: id of a letter that is not a piece.

    Returns:
        texts: (n, steps) string, in column e the piece that ends behind letter e.
        ids: (n, steps) int32, its id; 0 where no piece of the segmentation ends behind the letter.
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
    """Returns what ends behind each letter of words, 1 to `longest` letters long.

    Args:
        words: (n,) string.
        counts: (n,) int32, how many of its first letters are looked at.
        longest: letters of the longest piece.

    Returns:
        (n, steps, longest) string, and whether there is such: it begins and ends within these letters. There
        is one step more than the longest word has letters.

    Example:

    >>> texts, there = substrings(tf.constant(["año"]), tf.constant([3]), 2)
    >>> [text.decode() for text in tf.boolean_mask(texts, there).numpy()]
    ['a', 'ñ', 'añ', 'o', 'ño']
    """
    sizes = tf.range(1, longest + 1)
    # One step more, so that there is one.
    ends = tf.range(1, tf.reduce_max(tf.concat([counts, [0]], axis=0)) + 2)[:, None]
    there = (ends >= sizes) & (ends <= counts[:, None, None])
    # `substr` takes matrices alone.
    flat = tf.stack([tf.shape(there)[0], tf.shape(there)[1] * longest])
    starts, sizes = (tf.reshape(tf.where(there, value, 0), flat) for value in (ends - sizes, sizes))
    texts = tf.strings.substr(words[:, None], starts, sizes, unit="UTF8_CHAR")
    return tf.reshape(texts, tf.shape(there)), there


def likeliest(scores: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the segmentation of each word whose scores have the largest sum.

    Of equal ones that with the longer last piece, as in the library.

    Args:
        scores: (n, steps, longest) float32, in [i, e, l] of the piece of l + 1 letters that ends behind
            letter e of word i; -inf where there is none. Of one letter there is always one.
        counts: (n,) int32, the letters of each word.

    Returns:
        lengths: (n, steps) int32, of the last piece of the best segmentation up to each letter.
        ends: (n, steps) bool, whether a piece of the whole word's segmentation ends behind the letter.

    Example: "ab" as a whole is likelier than "a" and "b".

    >>> scores = tf.constant([[[-1.0, -np.inf], [-1.0, -1.5]]])
    >>> [found.numpy().tolist() for found in likeliest(scores, tf.constant([2]))]
    [[[1, 2]], [[False, True]]]
    """
    rows, steps, longest = tf.shape(scores)[0], tf.shape(scores)[1], scores.shape[2]
    first = tf.concat([tf.zeros((rows, 1)), tf.fill((rows, longest - 1), -np.inf)], axis=1)

    def extended(end: tf.Tensor, before: tf.Tensor, written: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        # `before[:, l]` is the best score of what ends l letters before the one before this.
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
