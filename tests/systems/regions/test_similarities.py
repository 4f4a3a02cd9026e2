"""Multi-vector similarities: geometry, scores, kinds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.contract import check_config, check_similarity
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.registry import kinds
from vsemb.similarities import Similarity
from vsemb.systems.regions.set_scores import cross_attention_scores
from vsemb.systems.regions.similarities import CrossAttention, MaxSim, MultiVectorSimilarity, SumSim

KINDS = ("max-sim", "sum-sim", "late-interaction", "cross-attention")


def embeddings(rows: int, seed: int, items: int = 4) -> np.ndarray:
    """Random embeddings of up to `items` vectors, with padding."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(rows, items, 8))
    vectors[np.arange(items) >= generator.integers(1, items + 1, (rows, 1))] = 0
    return vectors


@pytest.mark.parametrize(
    "similarity", [*map(similarities.get, KINDS), CrossAttention(attend="words")], ids=[*KINDS, "attends to words"]
)
def test_contract(similarity: Similarity) -> None:
    check_similarity(similarity, embeddings(7, 7), embeddings(5, 5))


def test_regions_and_words_by_hand() -> None:
    # Regions (1, 0), (0, 2) with word (3, 1) give 3 and 2, with (-1, -1) -1 and -2; the rest is padding.
    image = np.array([[[1, 0], [0, 2], [0, 0]]], np.float32)
    text = np.array([[[3, 1], [-1, -1], [0, 0]]], np.float32)
    assert float(similarities.get("max-sim").scores(image, text)[0, 0]) == 3 - 1
    assert float(similarities.get("sum-sim").scores(image, text)[0, 0]) == 3 + 2
    for name in ("max-sim", "sum-sim"):
        found = similarities.get(name).word_region_scores(image, text)
        assert found.numpy().tolist() == [[[3, 2, 0], [-1, -2, 0], [0, 0, 0]]]


def test_late_interaction_by_hand() -> None:
    # Unit regions (1, 0), (0, -1); words (3, 4), (0, 2), (0, 0): cosines 0.6, -0.8 and 0, -1, then padding.
    similarity = similarities.get("late-interaction")
    image = similarity.normalize(np.array([[[2, 0], [0, -5], [0, 0]]], np.float32))
    text = similarity.normalize(np.array([[[3, 4], [0, 2], [0, 0]]], np.float32))
    np.testing.assert_allclose(similarity.scores(image, text), [[(0.6 + 0) / 2]], rtol=1e-6)
    # A padded region would win the second word of this image, where all cosines are negative.
    image = similarity.normalize(np.array([[[-1, -1], [0, 0]]], np.float32))
    np.testing.assert_allclose(similarity.scores(image, text), [[-(1.4 + 1) / 2 / np.sqrt(2)]], rtol=1e-6)
    assert float(similarity.scores(image, 0 * text)[0, 0]) == 0


@pytest.mark.parametrize(("attend", "temperature"), [("regions", 9.0), ("words", 4.0)])
def test_attention_compares_unit_vectors(attend: str, temperature: float) -> None:
    similarity = CrossAttention(attend)
    raw = [embeddings(4, seed) for seed in (0, 1)]
    images, texts = (similarity.normalize(x) for x in raw)
    longer = [similarity.normalize(7 * x) for x in raw]
    np.testing.assert_allclose(similarity.scores(*longer), similarity.scores(images, texts), rtol=1e-5)
    # The published temperature is the default.
    published = CrossAttention(attend, temperature).scores(images, texts)
    np.testing.assert_array_equal(similarity.scores(images, texts), published)
    found = similarity.word_region_scores(images, texts).numpy()
    assert np.abs(found).max() <= 1 + 1e-6
    np.testing.assert_allclose(found[2, 0, 0], np.dot(images[2, 0], texts[2, 0]), rtol=1e-5, atol=1e-6)


def test_options_of_attention_arrive() -> None:
    options = {"attend": "words", "temperature": 2.5, "pooling": "lse", "lse_temperature": 5.0}
    similarity = CrossAttention(**options)
    check_config(similarity)
    images, texts = (similarity.normalize(embeddings(3, seed)) for seed in (0, 1))
    scores = similarity.scores(images, texts)
    np.testing.assert_allclose(scores, cross_attention_scores(images, texts, **options), rtol=1e-6)
    assert np.abs(scores - CrossAttention("words").scores(images, texts)).max() > 0.01


def test_which_accept_multi_vectors() -> None:
    found = {kind for kind in kinds("similarity") if similarities.get(kind).multi_vector}
    assert found == set(KINDS)
    assert all(isinstance(similarities.get(kind), MultiVectorSimilarity) for kind in found)
    assert (MaxSim.reduce, SumSim.reduce) == ("max", "sum")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"attend": "images"}, "regions, words"),
        ({"temperature": 0.0}, "temperature.*above 0, at most 30"),
        ({"temperature": 31.0}, "temperature.*above 0, at most 30"),
        ({"temperature": math.nan}, "temperature.*above 0, at most 30"),
        ({"pooling": "max"}, "mean, lse"),
        ({"lse_temperature": -1.0}, "above 0, at most 80"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        CrossAttention(**options)
