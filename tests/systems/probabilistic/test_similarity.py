"""The similarity `csd`: contract, and what search and evaluation know of it."""

from __future__ import annotations

import numpy as np

from tests.contract import check_similarity
from tests.raising import raises_argument
from tests.systems.probabilistic.slow import slow_distance
from vsemb import similarities
from vsemb.evaluation import retrieval_ranks
from vsemb.searching.index import SearchIndex
from vsemb.systems.probabilistic.similarity import SampledDistance


def drawn(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)


def test_contract() -> None:
    assert similarities.get("csd") == SampledDistance()
    check_similarity(SampledDistance(), drawn(7), drawn(5))
    with raises_argument("embedding_dim"):
        SampledDistance().normalize(drawn(3)[:, :7])


def test_means_have_unit_length_and_variances_stay() -> None:
    rows = drawn(6)
    normalized = np.asarray(SampledDistance().normalize(rows))
    np.testing.assert_allclose(np.linalg.norm(normalized[:, :4], axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(normalized[:, 4:], rows[:, 4:])
    # Embeddings that are stored are not changed.
    assert SampledDistance().normalized_array(normalized) is normalized


def test_what_search_and_evaluation_know_of_it() -> None:
    similarity = SampledDistance()
    assert not similarity.linear and not similarity.inner_product and not similarity.candidates_by_inner_product
    # The score of an item with itself is minus twice its uncertainty.
    assert similarity.self_score is None and not similarity.compares_directions


def test_search_and_ranks_have_the_nearest_distributions() -> None:
    images, texts = (np.asarray(SampledDistance().normalize(drawn(n))) for n in (40, 3))
    expected = np.array([[slow_distance(text, image) for image in images] for text in texts])
    index = SearchIndex.from_arrays(images, similarity="csd")
    rows, scores = index.search(texts, 4)
    np.testing.assert_array_equal(rows, np.argsort(expected, axis=1)[:, :4])
    np.testing.assert_allclose(-scores, np.sort(expected, axis=1)[:, :4], rtol=1e-5)
    with raises_argument("candidates"):
        index.search(texts, 4, candidates=10)
    _, of_texts = retrieval_ranks(images[:3], texts, similarity="csd")
    np.testing.assert_array_equal(of_texts, [(expected[row, :3] < expected[row, row]).sum() for row in range(3)])
