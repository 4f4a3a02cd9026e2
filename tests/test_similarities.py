"""Similarities: geometry, scores, names."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from tests.oracles import TOLERANCE, oracle
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.losses import PairwiseRanking
from vsemb.similarities import Cosine, Dot, OrderViolation, ReversedOrderViolation, Similarity
from vsemb.systems.regions.attention import cross_attention_scores
from vsemb.systems.regions.similarities import CrossAttention, MultiVectorSimilarity, RegionWord


def embeddings(similarity: Similarity, rows: int, seed: int, items: int = 4) -> np.ndarray:
    """Random embeddings of a similarity's shape, sets of up to `items` with padding."""
    generator = np.random.default_rng(seed)
    if not similarity.multi_vector:
        return generator.normal(size=(rows, 8))
    vectors = generator.normal(size=(rows, items, 8))
    vectors[np.arange(items) >= generator.integers(1, items + 1, (rows, 1))] = 0
    return vectors


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_contract(name: str) -> None:
    similarity = similarities.get(name)
    check_config(similarity)
    x = tf.cast(embeddings(similarity, 3, 0), tf.bfloat16)
    normalised = similarity.normalize(x)
    assert normalised.dtype == tf.float32
    # In the similarity's own geometry already: a second time changes nothing.
    np.testing.assert_allclose(similarity.normalize(normalised), normalised, rtol=1e-6)
    scores = similarity.scores(normalised, normalised[:2])
    assert scores.shape == (3, 2) and scores.dtype == tf.float32
    pairs = similarity.pair_scores(normalised[:, None], normalised[None, :2])
    np.testing.assert_allclose(pairs, scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", similarities.SIMILARITIES)
def test_blocks_equal_the_whole(name: str) -> None:
    similarity = similarities.get(name)
    images, texts = (similarity.normalize(embeddings(similarity, n, n)) for n in (7, 5))
    whole = similarity.scores(images, texts)
    for size in (1, 3, 7):
        blocks = [similarity.scores(images[i : i + size], texts) for i in range(0, 7, size)]
        np.testing.assert_allclose(tf.concat(blocks, 0), whole, rtol=1e-5, atol=1e-6)


def test_by_hand() -> None:
    image, text = np.array([[3.0, 4.0]], np.float32), np.array([[0.0, 2.0]], np.float32)
    assert float(Dot().scores(image, text)[0, 0]) == 8
    cosine = Cosine()
    # (3, 4)/5 times (0, 1).
    np.testing.assert_allclose(cosine.scores(cosine.normalize(image), cosine.normalize(text)), [[0.8]], rtol=1e-6)


def test_get() -> None:
    cosine = Cosine()
    assert similarities.get(cosine) is cosine
    with pytest.raises(InvalidArgumentError, match="Did you mean 'cosine'"):
        similarities.get("cosin")


def test_order_oracle() -> None:
    case = oracle("order_caption_image")
    order = OrderViolation()
    image, caption = (
        order.normalize(np.array(case.inputs[f"{name}_raw"], np.float32)) for name in ("image", "caption")
    )
    np.testing.assert_allclose(image, case.expected["image"], **TOLERANCE)
    np.testing.assert_allclose(caption, case.expected["caption"], **TOLERANCE)
    scores = order.scores(image, caption)
    np.testing.assert_allclose(scores, case.expected["S_rows_images"], **TOLERANCE)
    for margin, suffix in ((case.inputs["margin"], ""), (0.4, "_margin_0.4")):
        for negatives, name in (("all", "sum_of_hinges"), ("hardest", "max_of_hinges")):
            loss = PairwiseRanking(margin, negatives)
            own = np.eye(3, dtype=np.int32)
            total = float(loss(own, scores)) + float(loss(own, tf.transpose(scores)))
            np.testing.assert_allclose(total, case.expected[name + suffix], **TOLERANCE)
    # As in VSE++'s repository, and not the paper's.
    wrong = case.expected["S_vsepp_sqrt_variant"]
    assert np.abs(np.array(wrong) - scores.numpy()).max() > 0.1


def test_order_is_geometry_with_a_direction() -> None:
    order = OrderViolation()
    points = order.normalize(np.array([[-3.0, 4.0], [0.0, -2.0]], np.float32))
    np.testing.assert_allclose(points, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)
    # Of text (0, 1) the image (0.6, 0.8) lacks 0.2; of text (0.6, 0.8) the image (0, 1) lacks 0.6.
    np.testing.assert_allclose(order.scores(points, points), [[0, -0.04], [-0.36, 0]], atol=1e-6)
    reversed_ = ReversedOrderViolation().scores(points, points)
    np.testing.assert_allclose(reversed_, [[0, -0.36], [-0.04, 0]], atol=1e-6)


def test_regions_and_words_by_hand() -> None:
    # Regions (1, 0), (0, 2) with word (3, 1) give 3 and 2, with (-1, -1) -1 and -2; the rest is padding.
    image = np.array([[[1, 0], [0, 2], [0, 0]]], np.float32)
    text = np.array([[[3, 1], [-1, -1], [0, 0]]], np.float32)
    assert float(similarities.get("region-word").scores(image, text)[0, 0]) == 3 - 1
    assert float(similarities.get("region-word-all").scores(image, text)[0, 0]) == 3 + 2
    for name in ("region-word", "region-word-all"):
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


@pytest.mark.parametrize("name", ["cross-attention", "cross-attention-image"])
def test_attention_compares_unit_vectors(name: str) -> None:
    similarity = similarities.get(name)
    assert isinstance(similarity, CrossAttention)
    assert similarity.temperature == {"regions": 9.0, "words": 4.0}[similarity.attend]
    raw = [embeddings(similarity, 4, seed) for seed in (0, 1)]
    images, texts = (similarity.normalize(x) for x in raw)
    longer = [similarity.normalize(7 * x) for x in raw]
    np.testing.assert_allclose(similarity.scores(*longer), similarity.scores(images, texts), rtol=1e-5)
    found = similarity.word_region_scores(images, texts).numpy()
    assert np.abs(found).max() <= 1 + 1e-6
    np.testing.assert_allclose(found[2, 0, 0], np.dot(images[2, 0], texts[2, 0]), rtol=1e-5, atol=1e-6)


def test_options_of_attention_arrive() -> None:
    options = {"attend": "words", "temperature": 2.5, "pooling": "lse", "lse_temperature": 5.0}
    similarity = CrossAttention(**options)
    check_config(similarity)
    images, texts = (similarity.normalize(embeddings(similarity, 3, seed)) for seed in (0, 1))
    scores = similarity.scores(images, texts)
    np.testing.assert_allclose(scores, cross_attention_scores(images, texts, **options), rtol=1e-6)
    assert np.abs(scores - CrossAttention("words").scores(images, texts)).max() > 0.01


def test_which_are_of_sets() -> None:
    sets = {name for name in similarities.SIMILARITIES if similarities.get(name).sets}
    attention = {"cross-attention", "cross-attention-image"}
    assert sets == {"region-word", "region-word-all", "late-interaction", *attention}
    assert all(isinstance(similarities.get(name), MultiVectorSimilarity) for name in sets)
    with pytest.raises(InvalidArgumentError, match="max, sum"):
        RegionWord("mean")
    with pytest.raises(InvalidArgumentError, match="regions, words"):
        CrossAttention("images")
