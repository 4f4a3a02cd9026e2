"""The likeliest segmentation, beside all segmentations one by one."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from vsemb.text.segmentation import likeliest, substrings


def every_segmentation(letters: int, longest: int) -> list[list[int]]:
    """The places where pieces end, of every way to cut so many letters."""
    segmentations = []
    for cuts in itertools.product([False, True], repeat=letters - 1):
        ends = [place + 1 for place, cut in enumerate(cuts) if cut] + [letters]
        if max(np.diff([0, *ends])) <= longest:
            segmentations.append(ends)
    return segmentations


def test_the_largest_sum_of_all() -> None:
    generator = np.random.default_rng(0)
    counts, longest, steps = [1, 2, 5, 7, 7, 0], 3, 8
    scores = np.full((len(counts), steps, longest), -np.inf, np.float32)
    for row, count in enumerate(counts):
        for end in range(count):
            most = min(longest, end + 1)
            # Some longer pieces are missing; of one letter there is always one.
            there = generator.random(most) < 0.6
            there[0] = True
            scores[row, end, :most] = np.where(there, generator.normal(size=most), -np.inf)
    lengths, ends = (values.numpy() for values in likeliest(tf.constant(scores), tf.constant(counts)))
    assert lengths.shape == ends.shape == (len(counts), steps)
    for row, count in enumerate(counts):
        if not count:
            assert not ends[row].any()
            continue
        sums = {
            tuple(cut): sum(scores[row, end - 1, end - start - 1] for start, end in zip([0, *cut], cut, strict=False))
            for cut in every_segmentation(count, longest)
        }
        best = max(sums, key=sums.__getitem__)
        assert tuple(np.flatnonzero(ends[row]) + 1) == best
        assert [lengths[row, end - 1] for end in best] == np.diff([0, *best]).tolist()


def test_of_equal_ones_the_longer_last_piece() -> None:
    scores = tf.constant([[[-1.0, -np.inf], [-1.0, -2.0]]])
    _, ends = likeliest(scores, tf.constant([2]))
    assert ends.numpy().tolist() == [[False, True]]


def test_substrings_are_slices() -> None:
    words, counts = ["año", "", "dogs", "é"], [3, 0, 3, 1]  # of "dogs" three letters alone
    texts, there = (values.numpy() for values in substrings(tf.constant(words), tf.constant(counts), 3))
    assert texts.shape == there.shape == (4, 4, 3)
    for row, (word, count) in enumerate(zip(words, counts, strict=True)):
        for end, size in itertools.product(range(1, 5), range(1, 4)):
            wanted = word[end - size : end] if size <= end <= count else None
            text = texts[row, end - 1, size - 1].decode() if there[row, end - 1, size - 1] else None
            assert text == wanted


def test_no_words() -> None:
    texts, there = substrings(tf.constant([], tf.string), tf.constant([], tf.int32), 3)
    assert texts.shape == there.shape == (0, 1, 3)
