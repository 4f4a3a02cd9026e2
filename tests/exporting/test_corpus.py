"""Search in graph against the index that it is made from, and against arithmetic by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.exporting import corpus as corpus_module
from vsemb.exporting.corpus import Corpus
from vsemb.searching.index import IndexSource, SearchIndex

DIM = 6


def embeddings(count: int, similarity: str, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32)
    return np.array(similarities.get(similarity).normalize(raw))


def corpus_of(count: int, similarity: str, kind: str = "image") -> tuple[Corpus, SearchIndex]:
    source = IndexSource("run", "data", ("val",), kind, similarity)
    keys = [f"item {number}" for number in range(count)]
    index = SearchIndex(embeddings(count, similarity), np.arange(count) + 2**40, keys, source)
    return Corpus.of(index), index


def search(corpus: Corpus, queries: np.ndarray, k: list[int], similarity: str, query_kind: str) -> dict:
    @tf.function(input_signature=[tf.TensorSpec([None, DIM]), tf.TensorSpec([None], tf.int32)], autograph=False)
    def function(vectors, wanted):
        valid = tf.reduce_any(vectors != 0, axis=1)
        return corpus.search(vectors, valid, wanted, similarities.get(similarity), query_kind)

    return {key: value.numpy() for key, value in function(queries, k).items()}


@pytest.mark.parametrize("block", [1 << 25, 40])  # All queries at once, and one or two at a time.
@pytest.mark.parametrize("similarity", ["dot", "cosine", "order"])
@pytest.mark.parametrize(("kind", "query_kind"), [("image", "text"), ("image", "image"), ("text", "image")])
def test_it_finds_what_the_index_finds(similarity, kind, query_kind, block, monkeypatch):
    monkeypatch.setattr(corpus_module, "_BLOCK", block)
    corpus, index = corpus_of(30, similarity, kind)
    queries = embeddings(5, similarity, seed=1)
    found = search(corpus, queries, [4] * 5, similarity, query_kind)
    rows, scores = index.search(queries, 4, query_kind=query_kind)
    np.testing.assert_array_equal(found["ids"], index.ids[rows])
    np.testing.assert_array_equal(found["keys"], np.array(index.keys, object)[rows].astype("S"))
    # Inner products over six numbers in two orders of addition.
    np.testing.assert_allclose(found["scores"], scores, atol=1e-6)
    assert found["valid"].all() and found["ids"].dtype == np.int64 and found["scores"].dtype == np.float32


def test_each_row_has_a_k_of_its_own_and_the_rest_is_empty():
    corpus, _ = corpus_of(3, "cosine")
    queries = embeddings(4, "cosine", seed=1)
    queries[3] = 0
    found = search(corpus, queries, [1, 0, 99, 2], "cosine", "text")
    assert found["ids"].shape == (4, 3)  # Three items are all there are.
    assert (found["ids"] >= 0).sum(axis=1).tolist() == [1, 0, 3, 0]
    assert found["valid"].tolist() == [True, False, True, False]
    empty = found["ids"] < 0
    assert not found["scores"][empty].any() and set(found["keys"][empty]) == {b""}
    alone = search(corpus, queries[:1], [1], "cosine", "text")
    assert alone["ids"].tolist() == [[found["ids"][0, 0]]]


def test_no_query_and_no_k_give_no_columns():
    corpus, _ = corpus_of(3, "cosine")
    assert search(corpus, np.zeros((0, DIM), np.float32), [], "cosine", "text")["ids"].shape == (0, 0)
    found = search(corpus, embeddings(2, "cosine"), [-1, -(2**31)], "cosine", "text")
    assert found["ids"].shape == (2, 0) and not found["valid"].any()


def test_one_k_is_for_all_rows_and_any_other_number_is_refused():
    corpus, _ = corpus_of(3, "cosine")
    queries = embeddings(3, "cosine")
    one, each = (search(corpus, queries, k, "cosine", "text") for k in ([2], [2, 2, 2]))
    assert one["ids"].tolist() == each["ids"].tolist() and one["ids"].shape == (3, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="one per query"):
        search(corpus, queries, [1, 2], "cosine", "text")


@pytest.mark.parametrize("similarity", ["cosine", "order"])
def test_equal_items_come_in_their_order(similarity):
    vectors = np.repeat(embeddings(1, similarity), 5, axis=0)
    corpus = Corpus(vectors, np.arange(5), list("abcde"))
    assert search(corpus, vectors[:1], [3], similarity, "text")["ids"].tolist() == [[0, 1, 2]]


def test_orders_are_scored_exactly_among_candidates(monkeypatch):
    # Inner products with y = (0.6, 0.8): 0.96 of x, 1.00 of a and 1.14 of b, so that b is the one candidate.
    # Violations max(0, y - item)²: 0 + 0.2² = 0.04 of x, and 0 of a and b, which lie beyond y everywhere.
    items = np.array([[0.8, 0.6], [0.6, 0.8], [0.7, 0.9]], np.float32)
    query = np.array([[0.6, 0.8]], np.float32)
    order = similarities.get("order")
    corpus = Corpus(items, np.arange(3), list("xab"))
    for candidates, expected in ((3, {0: -0.04, 1: 0.0, 2: 0.0}), (1, {2: 0.0})):
        monkeypatch.setattr(corpus_module, "FEWEST", candidates)
        monkeypatch.setattr(corpus_module, "EACH", 1)
        found = corpus.search(tf.constant(query), tf.constant([True]), tf.constant([candidates]), order, "text")
        pairs = zip(found["ids"].numpy()[0].tolist(), found["scores"].numpy()[0].tolist(), strict=True)
        assert dict(pairs) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("narrowed", [True, False])
@pytest.mark.parametrize(("kind", "query_kind", "best"), [("image", "text", 0), ("text", "image", 1)])
def test_scores_that_are_no_inner_products_are_those_of_the_similarity(narrowed, kind, query_kind, best, monkeypatch):
    # The first item scores 0 as an image and the second as a text; by inner products the third is best.
    @dataclass(frozen=True)
    class Nearest(similarities.Dot):
        inner_product: ClassVar[bool] = False
        candidates_by_inner_product: ClassVar[bool] = narrowed

        def scores(self, images, texts):
            return self.pair_scores(images[:, None], texts[None])

        def pair_scores(self, images, texts):
            return -tf.reduce_sum(tf.square(texts - images - 1), axis=-1)

    monkeypatch.setattr(corpus_module, "EACH", 3)
    query = tf.constant([[4.0, 4.0]])
    corpus = Corpus(np.array([[3, 3], [5, 5], [9, 9]], np.float32), np.arange(3), list("abc"), kind)
    found = corpus.search(query, tf.constant([True]), tf.constant([1]), Nearest(), query_kind)
    assert (found["ids"].numpy().tolist(), found["scores"].numpy().tolist()) == ([[best]], [[0.0]])


@pytest.mark.parametrize(
    "parts",
    [
        (np.zeros((0, 2), np.float32), np.zeros(0), []),
        (np.zeros((2, 2), np.float32), np.zeros(3), ["a", "b"]),
        (np.zeros(2, np.float32), np.zeros(2), ["a", "b"]),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts):
    with pytest.raises(InvalidArgumentError, match="embeddings"):
        Corpus(*parts)


def test_too_many_items_are_refused(monkeypatch):
    monkeypatch.setattr(corpus_module, "MOST_ITEMS", 2)
    with raises_argument("embeddings"):
        corpus_of(3, "dot")
