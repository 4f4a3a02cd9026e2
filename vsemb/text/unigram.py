"""The likeliest pieces of words under a unigram model, in graph and with core operations.

Kudo 2018, arXiv:1804.10959, section 3.2: dynamic programming over the letters of a word, as the sentencepiece
library does it.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


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
