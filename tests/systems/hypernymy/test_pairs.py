"""Pairs: membership, splits, corruption."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.hypernymy.pairs import PairSet, corrupt, labelled_pairs, split_pairs


def all_pairs(concepts: int) -> np.ndarray:
    return np.stack(np.meshgrid(range(concepts), range(concepts), indexing="ij"), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_membership_of_every_pair(seed):
    generator = np.random.default_rng(seed)
    pairs = generator.integers(9, size=(20, 2)).astype(np.int32)
    known = PairSet(pairs, concepts=9)
    every = generator.permutation(all_pairs(9))
    slow = {(int(low), int(high)) for low, high in pairs}
    assert known.contains(every).tolist() == [tuple(pair) in slow for pair in every.tolist()]
    assert len(known) == len(slow)


def test_numbers_beyond_32_bits():
    # 82114 * 82115 + 82113 does not fit into int32.
    pair = np.array([[82114, 82113]], np.int32)
    known = PairSet(pair, concepts=82115)
    assert known.contains(np.concatenate([pair, pair - 1])).tolist() == [True, False]


def test_empty_set_and_strangers():
    assert PairSet(np.empty((0, 2), np.int32), 3).contains(all_pairs(3)).sum() == 0
    for wrong in (-1, 3):
        with pytest.raises(DataError, match="0 to 2"):
            PairSet(np.array([[0, wrong]]), 3)


def test_split_is_a_partition_by_seed():
    pairs = np.arange(40, dtype=np.int32).reshape(20, 2)
    split = split_pairs(pairs, held_out=3, seed=1)
    assert (len(split.train), len(split.dev), len(split.test)) == (14, 3, 3)
    together = np.concatenate([split.train, split.dev, split.test])
    assert sorted(together.tolist()) == pairs.tolist()
    assert split_pairs(pairs, held_out=3, seed=1).test.tolist() == split.test.tolist()
    assert split_pairs(pairs, held_out=3, seed=2).test.tolist() != split.test.tolist()
    for held_out in (0, 10):
        with pytest.raises(InvalidArgumentError, match="held_out"):
            split_pairs(pairs, held_out=held_out)


def test_any_corruption_replaces_one_end_by_anything():
    pairs = np.tile([[3, 7]], (4000, 1))
    false = corrupt(pairs, 10, np.random.default_rng(0))
    assert false.dtype == np.int32
    kept = false == pairs
    assert kept.any(axis=1).all()
    # One end in two, less the tenth of draws that replace it by itself: 0.55 of 4000, 5 deviations = 157.
    assert abs(kept[:, 0].sum() - 2200) < 160
    # Every concept comes in place of each end.
    assert set(false[~kept[:, 0], 0]) == set(range(10)) - {3}
    assert set(false[~kept[:, 1], 1]) == set(range(10)) - {7}
    # True pairs and pairs with itself are not kept away.
    assert (false == [3, 7]).all(axis=1).any()
    assert (false[:, 0] == false[:, 1]).any()


def test_filtered_corruption_is_false():
    # Everything is below 0, so nothing false comes of replacing the first of (x, 0).
    pairs = np.array([[low, 0] for low in range(1, 8)] * 300)
    known = PairSet(pairs, 8)
    false = corrupt(pairs, 8, np.random.default_rng(0), known)
    assert not known.contains(false).any()
    assert (false[:, 0] != false[:, 1]).all()
    assert ((false == pairs).sum(axis=1) == 1).all()
    assert set(false[:, 1]) == set(range(1, 8))


def test_corruption_by_seed():
    pairs = np.tile([[3, 7]], (50, 1))
    drawn = [corrupt(pairs, 10, np.random.default_rng(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_no_false_pair_to_be_had():
    # Of the four pairs of two concepts (0, 0) and (1, 1) are no candidates and (0, 1) is true.
    pairs = np.array([[0, 1]])
    with pytest.raises(DataError, match=r"replacing one end of \(0, 1\)"):
        corrupt(pairs, 2, np.random.default_rng(0), PairSet(pairs, 2))


def test_labels():
    pairs = np.array([[0, 1], [0, 2]])
    both, labels = labelled_pairs(pairs, 3, seed=0, known=PairSet(pairs, 3))
    assert both[:2].tolist() == pairs.tolist()
    assert labels.tolist() == [1, 1, 0, 0]
    assert not PairSet(pairs, 3).contains(both[2:]).any()
