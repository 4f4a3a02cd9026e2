"""The weighted sum of losses is just that, and its parts see the optimizer's step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract import check_loss
from tests.losses.slow import random_labels
from tests.raising import raises_argument
from vsemb.losses import CombinedLoss, InfoNCE, PairwiseRanking, SigmoidLoss


def make(**arguments) -> CombinedLoss:
    return CombinedLoss([PairwiseRanking(0.2, "hardest"), InfoNCE(0.5)], [1.0, 3.0], **arguments)


def test_sum_of_parts() -> None:
    labels, mask, scores = random_labels(5, 8, seed=2)
    scores = scores.astype(np.float32)
    ranking = PairwiseRanking(0.2, "hardest", reduction=None).call(labels, scores, mask)
    infonce = InfoNCE(0.5).call(labels, scores, mask)
    np.testing.assert_allclose(make().call(labels, scores, mask), ranking + 3 * infonce, rtol=1e-6)


class OfItems(InfoNCE):
    """A loss whose terms of the items are a number."""

    over_items = True

    def __init__(self, value: float) -> None:
        super().__init__(0.5)
        self.value = value

    def of_items(self, images, texts, labels, mask):
        return np.full(len(labels), self.value, np.float32)


def test_terms_of_items_have_the_weights_of_their_losses() -> None:
    labels, mask, scores = random_labels(5, 8, seed=2)
    loss = CombinedLoss([OfItems(10.0), InfoNCE(0.5), OfItems(1.0)], [0.5, 7.0, 3.0])
    np.testing.assert_array_equal(loss.of_items(scores, scores, labels, mask), 8.0)


def test_contract() -> None:
    check_loss(make(), *random_labels(5, 8, seed=1))
    check_loss(make(reduction="sum"), *random_labels(5, 8, seed=1))


def test_step_reaches_the_parts() -> None:
    loss = CombinedLoss([PairwiseRanking(0.2, "hardest", warmup_steps=10)], [1.0])
    labels, scores = np.eye(3, dtype=np.int32), np.full((3, 3), 0.5, np.float32)
    loss.bind_step(0)  # All embeddings at one point: two hinges of 0.2 a query at first,
    np.testing.assert_allclose(float(loss(labels, scores)), 0.4, rtol=1e-6)
    loss.bind_step(10)  # the hardest alone at the end.
    np.testing.assert_allclose(float(loss(labels, scores)), 0.2, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
def test_the_value_of_a_collapsed_model(reduction: str) -> None:
    labels, scores = np.eye(4, dtype=np.int32), np.full((4, 4), 0.5, np.float32)
    loss = make(reduction=reduction)
    # By hand, each direction: the margin, and three times the logarithm of four candidates.
    per_query = 0.2 + 3 * np.log(4)
    expected = 2 * per_query * (4 if reduction == "sum" else 1)
    np.testing.assert_allclose(loss.collapsed_value(4, 4), expected, rtol=1e-6)
    np.testing.assert_allclose(2 * float(loss(labels, scores)), expected, rtol=1e-6)
    # Of the sigmoid loss it is not known, and so not of a sum with it.
    assert np.isnan(CombinedLoss([PairwiseRanking(), SigmoidLoss()], [1.0, 1.0]).collapsed_value(4, 4))


@pytest.mark.parametrize(("losses", "weights"), [([], []), ([InfoNCE()], [1.0, 2.0])])
def test_bad_weights(losses, weights) -> None:
    with raises_argument("weights"):
        CombinedLoss(losses, weights)
