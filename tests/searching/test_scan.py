"""The best k of blocks of scores, as a full sort finds them, and the scan that rounds: it never misses what scoring
everything finds, however the items lie."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.searching import index as index_module
from vsemb.searching import scan as module
from vsemb.searching.index import IndexSource, SearchIndex
from vsemb.searching.scan import Rounding, best_of, best_of_blocks, rounding, scan

NONE = np.zeros(0, np.int64)


def unit(count: int, dim: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def slow(items: np.ndarray, queries: np.ndarray, k: int, excluded: np.ndarray = NONE) -> np.ndarray:
    """The best rows by sums in float64, equal ones in their order."""
    scores = queries.astype(np.float64) @ items.astype(np.float64).T
    scores[:, excluded] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def near(centres: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Items around few centres: the closer, the more alike their scores."""
    generator = np.random.default_rng(0)
    items = unit(centres, 32, 3)[generator.integers(centres, size=3000)]
    items = items + np.float32(spread) * unit(3000, 32, 4)
    return items.astype(np.float32), unit(9, 32, 5)


CASES = {
    "uniform": (unit(3000, 32, 0), unit(9, 32, 1)),
    "long": (unit(3000, 32, 0) * np.float32(300), unit(9, 32, 1) * np.float32(0.01)),
    "not a multiple of a group": (unit(2983, 7, 0), unit(8, 7, 1)),
    "clusters": near(20, 0.3),
    "half": (unit(3000, 32, 0).astype(np.float16), unit(9, 32, 1)),
    "negative": (-np.abs(unit(3000, 32, 0)), np.abs(unit(9, 32, 1))),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [1 << 12, 1 << 24], ids=["blocks", "one block"])
def test_finds_what_scoring_everything_finds(name, dtype, block, monkeypatch) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    items, queries = CASES[name]
    excluded = np.array([5, 2000])
    found = scan(items, queries, 5 if block == 1 << 24 else 1, excluded, rounding(items, dtype))
    assert found is not None
    rows, scores = found
    assert rows.tolist() == slow(items, queries, rows.shape[1], excluded).tolist()
    exact = np.einsum("qd,qkd->qk", queries.astype(np.float64), items[rows].astype(np.float64))
    np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-6)


def test_without_the_margin_it_would_miss_some() -> None:
    items, queries = near(20, 0.003)
    wanted = slow(items, queries, 10).tolist()
    measured = rounding(items, "bfloat16")
    found = scan(items, queries, 10, NONE, measured)
    assert found is not None
    assert found[0].tolist() == wanted
    original, module._least = module._least, lambda kth, error, roundoff: kth
    try:
        missed = scan(items, queries, 10, NONE, measured)
    finally:
        module._least = original
    assert missed is not None
    assert missed[0].tolist() != wanted


def test_equal_items_come_in_their_order() -> None:
    items = unit(3000, 16, 0)
    items[[7, 1500, 2999]] = items[3]
    found = scan(items, np.repeat(items[3:4], 8, axis=0), 4, NONE, rounding(items))
    assert found is not None
    assert found[0].tolist() == [[3, 7, 1500, 2999]] * 8
    assert (found[1] == found[1][:, :1]).all()


def test_gives_up_where_scores_are_alike_or_items_few() -> None:
    same = np.ones((5000, 16), np.float32)
    queries = unit(8, 16, 1)
    assert scan(same, queries, 1, NONE, rounding(same)) is None
    few = unit(100, 16, 0)
    assert scan(few, queries, 10, NONE, rounding(few)) is None
    # So many are excluded that there are not as many groups as results.
    items = unit(640, 16, 0)
    assert scan(items, queries, 5, np.arange(100, 640), rounding(items)) is None


def test_rounding_is_what_it_says() -> None:
    items = unit(500, 16, 0)
    for dtype, most in (("bfloat16", 2.0**-8), ("float32", 0.0)):
        measured = rounding(items, dtype)
        moved = np.linalg.norm(items - tf.cast(tf.cast(items, dtype), tf.float32).numpy(), axis=1)
        assert measured.dtype == dtype
        assert measured.moved == pytest.approx(moved.max(), rel=1e-6)
        assert measured.moved <= most * measured.length
        assert measured.length == pytest.approx(1.0)


def test_a_machine_that_sums_roughly_scans_in_float32(monkeypatch) -> None:
    monkeypatch.setattr(module, "within", lambda sample, measured: False)
    assert rounding(unit(500, 16, 0), "bfloat16").dtype == "float32"


@pytest.mark.parametrize("off", [0.0, 0.5])
def test_sums_are_compared(off, monkeypatch) -> None:
    matmul = tf.matmul
    monkeypatch.setattr(tf, "matmul", lambda *args, **options: matmul(*args, **options) + off)
    measured = Rounding("bfloat16", 1.0, 2.0**-8)
    assert module.within(unit(50, 16, 0), measured) == (off == 0)


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_the_index_scans(similarity, monkeypatch) -> None:
    monkeypatch.setattr(index_module, "_FEWEST_ITEMS", 1000)
    items, queries = np.abs(unit(3000, 16, 0)), np.abs(unit(8, 16, 1))
    source = IndexSource("run", "data", ("val",), "image", similarity)
    index = SearchIndex(items, np.arange(3000), [str(row) for row in range(3000)], source)
    calls = []
    original = index_module.scan
    monkeypatch.setattr(index_module, "scan", lambda *args: calls.append(1) or original(*args))
    options = {"candidates": 20} if similarity == "order" else {}
    found, scores = index.search(queries, 3, exclude=[9], **options)
    assert calls
    monkeypatch.setattr(index_module, "FEWEST_QUERIES", 100)
    rows, expected = index.search(queries, 3, exclude=[9], **options)
    assert len(calls) == 1
    assert found.tolist() == rows.tolist()
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


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
