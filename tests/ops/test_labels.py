"""Relations by id, written out as matrices."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vsemb.ops.relation import pair_relation


def relation(ids, all_ids, own, all_own) -> list[list[int]]:
    arrays = [np.array(x, np.int64) for x in (ids, all_ids, own, all_own)]
    result = pair_relation(*arrays)
    assert result.dtype == tf.int32
    return result.numpy().tolist()


def test_two_captions_of_one_image_ignore_each_other() -> None:
    # Captions 0 and 2 show image 7.
    rows = [0, 1, 2]
    expected = [[1, 0, -1], [0, 1, 0], [-1, 0, 1]]
    assert relation([7, 8, 7], [7, 8, 7], rows, rows) == expected


def test_large_ids_are_not_rounded() -> None:
    # As float32 both would be 16777216; as int32 the second pair would be equal.
    ids = [2**24, 2**24 + 1, 5, 2**32 + 5]
    assert relation(ids, ids, range(4), range(4)) == np.eye(4, dtype=int).tolist()


def test_a_slice_of_the_queries_keeps_its_own_pairs() -> None:
    # The second of two replicas with two rows each: its rows are 2 and 3 of all.
    ids = [1, 2, 1, 3]
    assert relation(ids[2:], ids, [2, 3], range(4)) == [[-1, 0, 1, 0], [0, 0, 0, 1]]


def test_candidates_that_are_nobodys_own() -> None:
    assert relation([1, 2], [1, 3], [0, 1], [-1, -1]) == [[-1, 0], [0, 0]]
