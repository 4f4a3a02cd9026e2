"""Approximate search for order scores: what it finds, how that is measured, where it is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.searching import index as module
from vsemb.searching.backends.exact import Exact
from vsemb.searching.comparison import candidate_recall
from vsemb.searching.index import IndexSource, SearchIndex
from vsemb.searching.storage import write_index

SOURCE = IndexSource("run", "data", ("val",), "image", "order")


def vectors(count: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    drawn = np.abs(np.random.default_rng(seed).normal(size=(count, dim)))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def plain(embeddings: np.ndarray, kind: str = "image", similarity: str = "order") -> SearchIndex:
    count = len(embeddings)
    source = dataclasses.replace(SOURCE, kind=kind, similarity=similarity)
    return SearchIndex(embeddings, np.arange(count), [str(i) for i in range(count)], source)


# Violations of (.6, .8) by (.5, .5), (1, 0), (0, 2) are .1² + .3² = .1, .8² = .64 and .6² = .36; inner
# products are .7, .6 and 1.6: the best item is second among candidates.
ITEMS, QUERY = np.array([[0.5, 0.5], [1, 0], [0, 2]], np.float32), np.array([[0.6, 0.8]], np.float32)


def test_by_hand():
    index = plain(ITEMS)
    rows, scores = index.search(QUERY, 1, candidates=1)
    assert rows.tolist() == [[2]] and scores[0, 0] == pytest.approx(-0.36)
    rows, scores = index.search(QUERY, 2, candidates=2)
    assert rows.tolist() == [[0, 2]]
    np.testing.assert_allclose(scores, [[-0.1, -0.36]], rtol=1e-5)
    assert index.search(QUERY, 1, candidates=2, exclude=[0])[0].tolist() == [[2]]
    assert candidate_recall(index, QUERY, 1, k=1) == 0
    assert candidate_recall(index, QUERY, 2, k=1) == 1
    # Exactly best: .5, .5 and 0, 2. The two candidates hold both.
    assert candidate_recall(index, QUERY, 2, k=2) == 1
    # For (1, .1) the inner products .55, 1 and .2 and the violations .25, .01 and 1 agree: with one
    # candidate, one of the two queries finds its best.
    assert candidate_recall(index, np.array([[0.6, 0.8], [1, 0.1]], np.float32), 1, k=1) == 0.5


@pytest.mark.parametrize("similarity", ["order", "order-reversed"])
@pytest.mark.parametrize("query_kind", ["image", "text", None])
@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("numbers", [1, 100, 1 << 24])
def test_with_all_as_candidates_it_is_exact(monkeypatch, similarity, query_kind, kind, numbers):
    monkeypatch.setattr(module, "BLOCK", numbers)
    index, queries = plain(vectors(23), kind, similarity), vectors(5, seed=1)
    rows, scores = index.search(queries, 7, exclude=[3, 22], query_kind=query_kind)
    for candidates in (21, 1000):
        found = index.search(queries, 7, exclude=[3, 22], query_kind=query_kind, candidates=candidates)
        assert found[0].tolist() == rows.tolist()
        np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-7)


def test_candidates_are_those_of_the_largest_inner_product():
    items, queries = vectors(60, 32), vectors(4, 32, seed=1)
    rows, _ = plain(items).search(queries, 5, candidates=9)
    for query, found in zip(queries, rows, strict=True):
        nearest = np.argsort(-items @ query)[:9]
        violations = (np.maximum(query - items[nearest], 0) ** 2).sum(axis=1)
        assert found.tolist() == nearest[np.argsort(violations)[:5]].tolist()


def test_equal_items_come_in_the_order_of_the_rows():
    index = plain(np.tile(vectors(1), (9, 1)))
    queries = vectors(3, seed=1)
    assert index.search(queries, 4, candidates=6)[0].tolist() == [[0, 1, 2, 3]] * 3
    # All are as good as the exact four, whichever they are.
    assert candidate_recall(index, queries, 4, k=4) == 1


def test_nothing_left_to_rank():
    rows, scores = plain(vectors(1)).search(vectors(2), 1, exclude=[0], candidates=3)
    assert rows.shape == scores.shape == (2, 0)


def test_no_queries():
    rows, scores = plain(vectors(9)).search(np.zeros((0, 8), np.float32), 4, candidates=6)
    assert rows.shape == scores.shape == (0, 4)
    with raises_argument("queries"):
        candidate_recall(plain(vectors(9)), np.zeros((0, 8), np.float32), 6)


def test_what_is_refused():
    with raises_argument("candidates"):
        plain(vectors(9)).search(vectors(1), 4, candidates=3)
    for similarity in ("dot", "cosine"):
        with pytest.raises(InvalidArgumentError, match=f"{similarity}.*inner products"):
            plain(vectors(9), similarity=similarity).search(vectors(1), 4, candidates=6)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_without_candidates_by_inner_product_all_items_are_scored(monkeypatch, tmp_path, dtype):
    # Inner products alone would choose (0, 2) for (.6, .8), whose violation is the second of the three.
    monkeypatch.setattr(module, "EACH", 1)
    monkeypatch.setattr(module, "FEWEST", 1)
    keys = ["a", "b", "c"]
    index = write_index(tmp_path / "index", ITEMS, np.arange(3), keys, SOURCE, backend=Exact(dtype))
    monkeypatch.setattr(similarities.OrderViolation, "candidates_by_inner_product", False)
    assert index.search(QUERY, 1)[0].tolist() == [[0]]
    with raises_argument("candidates"):
        index.search(QUERY, 1, candidates=2)


def test_a_finder_that_would_not_be_read_is_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr(similarities.OrderViolation, "candidates_by_inner_product", False)
    with raises_argument("backend"):
        write_index(tmp_path / "index", ITEMS, np.arange(3), list("abc"), SOURCE, backend=Exact("int8"))
    assert not (tmp_path / "index").exists()
    write_index(tmp_path / "index", ITEMS, np.arange(3), list("abc"), SOURCE, backend=Exact("float16"))
