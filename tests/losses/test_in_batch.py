"""Losses by name, and Keras' own losses over a batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import random_labels
from tests.raising import raises_argument
from vsemb import losses, registry
from vsemb.losses import CombinedLoss, InfoNCE, KerasLoss, PairwiseRanking

KERAS = [
    keras.losses.CategoricalCrossentropy(from_logits=True),
    keras.losses.BinaryCrossentropy(from_logits=True),
    keras.losses.CategoricalHinge(reduction="sum"),
]


def test_get_by_kind() -> None:
    assert losses.get("ranking").get_config() == PairwiseRanking().get_config()
    assert isinstance(losses.get("ranking-infonce"), CombinedLoss)
    given = PairwiseRanking(0.7)
    assert losses.get(given) is given
    with raises_argument("loss"):
        losses.get("rankin")


@pytest.mark.parametrize("kind", registry.kinds("loss"))
def test_a_part_says_of_its_candidates_what_its_loss_says(kind: str) -> None:
    part = registry.find_part("loss", kind, "loss")()
    assert part.over_classes == part.build(steps_per_epoch=1).over_classes


@pytest.mark.parametrize("loss", KERAS, ids=lambda loss: loss.name)
def test_contract_of_keras_losses(loss: keras.losses.Loss) -> None:
    check_loss(KerasLoss(loss), *random_labels(5, 8, seed=1))


def test_squared_errors_need_another_score_for_what_is_masked() -> None:
    loss = KerasLoss(keras.losses.MeanSquaredError(), masked_score=0.0)
    check_loss(loss, *random_labels(5, 8, seed=1))
    # By hand: (0.9 - 1)^2 and 0.2^2 over three candidates, the last of which does not count.
    value = loss([[1, 0, 0]], [[0.9, 0.2, 5.0]], np.array([[True, True, False]]))
    np.testing.assert_allclose(float(value), (0.01 + 0.04) / 3, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (3, 9)])
def test_cross_entropy_from_logits_is_infonce(shape: tuple[int, int]) -> None:
    labels, mask, scores = random_labels(*shape, seed=3)
    results = []
    for loss in (losses.get(keras.losses.CategoricalCrossentropy(from_logits=True)), InfoNCE(1.0)):
        variable = tf.constant(scores.astype(np.float32))
        with tf.GradientTape() as tape:
            tape.watch(variable)
            value = loss(labels, variable, mask)
        results.append((value.numpy(), tape.gradient(value, variable).numpy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("reduction", "share"), [("sum", 3), (None, 3), ("sum_over_batch_size", 1), ("mean", 1)])
def test_the_reduction_of_a_keras_loss_is_kept(reduction: str | None, share: int) -> None:
    labels, mask, scores = random_labels(3, 5, seed=1)
    loss = losses.get(keras.losses.CategoricalCrossentropy(from_logits=True, reduction=reduction))
    expected = share * float(InfoNCE()(labels, scores, mask))
    np.testing.assert_allclose(float(loss(labels, scores, mask)), expected, rtol=1e-5)
