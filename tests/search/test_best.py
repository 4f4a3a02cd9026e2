"""The best k of blocks of scores: as a full sort finds them, with ties, in any blocks."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.search.best import best_of, best_of_blocks


def sorted_best(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("items", [1, 63, 64, 1000, 5000])
@pytest.mark.parametrize("k", [1, 10, 300])
@pytest.mark.parametrize("values", [3, 50, 10**9])
def test_as_a_full_sort(items, k, values):
    scores = np.random.default_rng(items).integers(values, size=(4, items)).astype(np.float32)
    # Few are left, as after an exclusion.
    scores[3, k // 2 :] = -np.inf
    where, best = best_of(scores, k)
    wanted = sorted_best(scores, k)
    assert where.tolist() == wanted.tolist()
    np.testing.assert_array_equal(best, np.take_along_axis(scores, wanted, axis=1))


@pytest.mark.parametrize("block", [1, 100, 640, 10**6])
def test_blocks_do_not_change_the_result_and_stay_small(block):
    scores = np.random.default_rng(0).integers(40, size=(5, 3000)).astype(np.float32)
    sizes = []

    def score(start, stop):
        sizes.append(5 * (stop - start))
        return scores[:, start:stop]

    rows, best = best_of_blocks(score, 3000, 5, 17, dim=2, block=block)
    assert rows.tolist() == sorted_best(scores, 17).tolist()
    assert best.tolist() == np.take_along_axis(scores, rows, axis=1).tolist()
    assert sum(sizes) == 15000 and max(sizes) <= max(block, 5)


def test_nothing_wanted_or_asked():
    assert best_of(np.zeros((2, 200), np.float32), 0)[0].shape == (2, 0)
    assert best_of(np.zeros((0, 200), np.float32), 3)[0].shape == (0, 3)
