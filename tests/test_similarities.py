"""Similarities: geometry, scores, names."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_similarity
from tests.oracles import TOLERANCE, oracle
from vsemb import similarities
from vsemb.errors import InvalidArgumentError
from vsemb.losses import PairwiseRanking
from vsemb.similarities import Cosine, Dot, OrderViolation, ReversedOrderViolation

KINDS = ("cosine", "dot", "order", "order-reversed")


@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind: str) -> None:
    check_similarity(similarities.get(kind), *(np.random.default_rng(n).normal(size=(n, 8)) for n in (7, 5)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_search_and_evaluation_know_of_it(kind: str) -> None:
    similarity, generator = similarities.get(kind), np.random.default_rng(0)
    images, texts = (np.asarray(similarity.normalize(generator.normal(size=(n, 8)))) for n in (7, 5))
    scores = np.asarray(similarity.scores(images, texts))
    of_mean = similarity.scores(images, texts.mean(axis=0, keepdims=True))[:, 0]
    assert similarity.linear == np.allclose(of_mean, scores.mean(axis=1), atol=1e-5)
    assert similarity.inner_product == np.allclose(scores, images @ texts.T, atol=1e-5)
    assert similarity.unit_length == np.allclose(np.linalg.norm(texts, axis=1), 1)
    own = np.asarray(similarity.pair_scores(images, images))
    assert np.allclose(own, own[0]) == (similarity.self_score is not None)
    np.testing.assert_allclose(own, own if similarity.self_score is None else similarity.self_score, atol=1e-6)


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


def test_texts_compose_where_they_are_above_images() -> None:
    assert [kind for kind in KINDS if similarities.get(kind).composes] == ["order"]


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
