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
