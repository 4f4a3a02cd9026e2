"""The entailment loss by hand, and MERU's loss of a batch in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from keras import ops

from tests.contract import check_config
from tests.ops.test_lorentz import slow_distance, slow_violation, vectors
from tests.raising import raises_argument
from vsemb import recipes
from vsemb.models import LogitScale
from vsemb.models.in_batch import InBatchObjective
from vsemb.systems.hyperbolic.entailment_loss import ConeEntailment, ContrastiveEntailment
from vsemb.systems.hyperbolic.similarity import Lorentz


def test_by_hand() -> None:
    # The text is at the distance asinh(0.4): the half aperture is asin(0.2 / 0.4), 30 degrees.
    text = np.array([[math.asinh(0.4), 0.0]])
    behind, before = np.array([[2.0, 0.0]]), np.array([[0.2, 0.0]])
    own = np.ones((1, 1)), np.ones((1, 1), bool)
    loss = ConeEntailment()
    np.testing.assert_allclose(loss.of_items(behind, text, *own), [0.0], atol=1e-6)
    np.testing.assert_allclose(loss.of_items(before, text, *own), [math.pi - math.pi / 6], rtol=1e-4)
    check_config(ConeEntailment(0.2))
    with raises_argument("min_radius"):
        ConeEntailment(0.0)


@pytest.mark.parametrize("block_size", [None, 2])
def test_the_loss_of_a_batch_is_the_papers(block_size: int | None) -> None:
    images, texts = vectors(3, 5, 20), vectors(3, 5, 21)
    part = ContrastiveEntailment(image_weight=0.5, text_weight=0.5, entailment_weight=0.2, block_size=block_size)
    objective = InBatchObjective(part.build(10), Lorentz(), LogitScale(5.0), 0.5, 0.5, block_size)
    objective.logit_scale.build()
    computed = objective({}, {"image": ops.array(images), "text": ops.array(texts)})

    logits = [[-5.0 * slow_distance(image, text) for text in texts] for image in images]

    def cross_entropy(rows: list[list[float]]) -> float:
        losses = [math.log(sum(map(math.exp, row))) - row[place] for place, row in enumerate(rows)]
        return sum(losses) / len(losses)

    turned = [list(column) for column in zip(*logits, strict=True)]
    contrastive = 0.5 * (cross_entropy(logits) + cross_entropy(turned))
    entailment = sum(slow_violation(image, text) for image, text in zip(images, texts, strict=True)) / 3
    assert entailment > 0.1
    assert float(computed) == pytest.approx(contrastive + 0.2 * entailment, rel=1e-4)


def test_each_text_meets_its_own_image() -> None:
    images, texts = vectors(4, 3, 22), vectors(3, 3, 23)
    labels = np.array([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    values = ConeEntailment().of_items(images, texts, ops.array(labels), labels == 1)
    expected = [slow_violation(images[row], text) for row, text in zip((2, 0, 3), texts, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-3)


def test_another_geometry_is_refused() -> None:
    with raises_argument("similarity"):
        recipes.get("meru").with_overrides(["similarity=cosine"])
