"""Labels and masks by id, written out as matrices."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vsemb.models.in_batch import class_labels, pair_labels

# Of a code: 1 for the own pair, 0 for a negative, -1 for a candidate to ignore.
Codes = list[list[int]]


def codes(ids, all_ids, own, all_own) -> Codes:
    arrays = [np.array(x, np.int64) for x in (ids, all_ids, own, all_own)]
    labels, mask = pair_labels(*arrays)
    assert (labels.dtype, mask.dtype) == (tf.int32, tf.bool)
    # The own pair is never masked.
    assert mask.numpy()[labels.numpy() == 1].all()
    return np.where(mask, labels, -1).tolist()


def test_two_captions_of_one_image_ignore_each_other() -> None:
    # Captions 0 and 2 show image 7.
    rows = [0, 1, 2]
    expected = [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]
    assert codes([7, 8, 7], [7, 8, 7], rows, rows) == expected


def test_large_ids_are_not_rounded() -> None:
    # As float32 both would be 16777216; as int32 the second pair would be equal.
    ids = [2**24, 2**24 + 1, 5, 2**32 + 5]
    assert codes(ids, ids, range(4), range(4)) == np.eye(4, dtype=int).tolist()


def test_a_slice_of_the_queries_keeps_its_own_pairs() -> None:
    # The second of two replicas with two rows each: its rows are 2 and 3 of all.
    ids = [1, 2, 1, 3]
    assert codes(ids[2:], ids, [2, 3], range(4)) == [[-1, 0, 1, 0], [0, 0, 0, 1]]


def test_candidates_that_are_nobodys_own() -> None:
    assert codes([1, 2], [1, 3], [0, 1], [-1, -1]) == [[-1, 0], [0, 0]]


def test_classes_in_place_of_items() -> None:
    # Items 0 and 2 are of class 7, item 1 is of class 8; query 1 is a second one of class 8, its own pair item 1.
    classes, queries = np.array([7, 8, 7]), np.array([7, 8])
    labels, scores, mask = class_labels(
        np.array([[1, 0, 0], [0, 1, 0]]), np.array([[4.0, 3.0, 1.0], [0.0, 6.0, 2.0]], np.float32), queries, classes
    )
    assert labels.numpy().tolist() == [[1, 1, 0, 1], [1, 0, 1, 0]]
    assert scores.numpy().tolist() == [[4.0, 2.5, 3.0, 2.5], [6.0, 1.0, 6.0, 1.0]]
    # Each class counts once, where it stands first.
    assert mask.numpy().tolist() == 2 * [[True, True, True, False]]
