"""The similarity `lorentz`: contract, and what search and evaluation know of it."""

from __future__ import annotations

import numpy as np

from tests.contract import check_similarity
from vsemb import similarities
from vsemb.searching.index import SearchIndex
from vsemb.systems.hyperbolic.similarity import Lorentz


def drawn(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)


def test_contract() -> None:
    assert similarities.get("lorentz") == Lorentz()
    check_similarity(Lorentz(), drawn(7), drawn(5))


def test_scores_by_hand() -> None:
    # Distances to the root are the lengths; on one line through the root, distances are differences.
    scores = Lorentz().scores(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0], [0.6, 0.8], [-0.6, -0.8]]))
    np.testing.assert_allclose(scores, [[-5, -4, -6]], rtol=1e-5)


def test_what_search_and_evaluation_know_of_it() -> None:
    similarity, images, texts = Lorentz(), drawn(7), drawn(5)
    scores = np.asarray(similarity.scores(images, texts))
    assert not similarity.linear and not similarity.inner_product and not similarity.candidates_by_inner_product
    assert np.abs(scores - images @ texts.T).max() > 1
    assert (np.asarray(similarity.pair_scores(images, images)) == similarity.self_score).all()
    # Embeddings that are stored are not changed, whatever their length.
    assert similarity.normalized_array(images) is images


def test_an_index_finds_the_nearest_points() -> None:
    images, texts = drawn(40), drawn(3)
    rows, scores = SearchIndex.from_arrays(images, similarity="lorentz").search(texts, 4)
    expected = -np.asarray(Lorentz().scores(images, texts)).T
    np.testing.assert_array_equal(rows, np.argsort(expected, axis=1)[:, :4])
    np.testing.assert_allclose(-scores, np.sort(expected, axis=1)[:, :4], rtol=1e-5)
