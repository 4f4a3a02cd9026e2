"""The sigmoid loss: by hand, a double loop, finite differences, and its sum from parts."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import finite_differences, random_labels, sigmoid_rows
from tests.raising import raises_argument
from vsemb import losses, registry
from vsemb.losses import CombinedLoss, InBatchLoss, InfoNCE, SigmoidLoss
from vsemb.losses.contrastive import Contrastive, Sigmoid


def test_by_hand() -> None:
    # Logits s / 0.5 - 1: row 0 (1, -1), row 1 (-1, 0), where the first column of row 1 is ignored.
    # Row 0: log(1 + e^-1) twice = 0.626523; row 1: log 2 = 0.693147; mean 0.659835.
    loss = SigmoidLoss(temperature=0.5, bias=-1.0)
    value = float(loss([[1, 0], [0, 1]], [[1.0, 0.0], [0.0, 0.5]], np.array([[True, True], [False, True]])))
    np.testing.assert_allclose(value, (2 * math.log(1 + math.exp(-1)) + math.log(2)) / 2, rtol=1e-6)
    # By default scores are logits.
    np.testing.assert_allclose(float(SigmoidLoss()([[1]], [[2.0]])), math.log(1 + math.exp(-2)), rtol=1e-6)


def test_a_learned_temperature_is_the_models_and_another_the_losses() -> None:
    learned, given = (Sigmoid(temperature=0.5, bias=-3.0, learn_temperature=learn) for learn in (True, False))
    assert (learned.build(1).temperature, learned.build(1).bias, learned.logit_scale()) == (1.0, 0.0, (0.5, -3.0))
    assert (given.build(1).temperature, given.build(1).bias, given.logit_scale()) == (0.5, -3.0, None)
    learned, given = (Contrastive(temperature=0.5, learn_temperature=learn) for learn in (True, False))
    assert (learned.build(1).temperature, learned.logit_scale()) == (1.0, (0.5, None))
    assert (given.build(1).temperature, given.logit_scale()) == (0.5, None)


@pytest.mark.parametrize("shape", [(4, 4), (3, 9)])
@pytest.mark.parametrize(("temperature", "bias"), [(1.0, 0.0), (0.3, -2.0)])
def test_equals_double_loop_forward_and_gradient(shape, temperature: float, bias: float) -> None:
    labels, mask, scores = random_labels(*shape, seed=3)

    def slow(values: np.ndarray) -> float:
        return sigmoid_rows(labels, mask, values, temperature, bias).mean()

    variable = tf.constant(scores.astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = SigmoidLoss(temperature, bias)(labels, variable, mask)
    np.testing.assert_allclose(float(value), slow(scores), rtol=1e-5)
    # Central differences err by step**2, float32 by 1e-7 times the 1/0.3 of the temperature.
    np.testing.assert_allclose(tape.gradient(value, variable), finite_differences(slow, scores), atol=1e-5)


def test_large_scores_stay_finite() -> None:
    variable = tf.constant([[-1e4, 1e4, 1e4]])
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = SigmoidLoss()([[1, 0, 0]], variable, np.array([[True, True, False]]))
    np.testing.assert_allclose(float(value), 2e4)
    np.testing.assert_allclose(tape.gradient(value, variable), [[-1.0, 1.0, 0.0]])


@pytest.mark.parametrize("arguments", [{}, {"temperature": 0.1, "bias": -10.0}])
def test_contract(arguments) -> None:
    check_loss(SigmoidLoss(**arguments), *random_labels(5, 8, seed=1))
    check_loss(SigmoidLoss(**arguments, reduction="sum"), *random_labels(5, 8, seed=1))


@pytest.mark.parametrize("name", registry.kinds("loss"))
def test_what_is_additive_can_be_added_up_from_parts(name: str) -> None:
    loss = losses.get(name)
    labels, mask, scores = random_labels(6, 6, seed=2)
    given = (labels, scores.astype(np.float32), mask)
    parts = sum(np.asarray(loss.call(*(each[:, i : i + 2] for each in given))) for i in (0, 2, 4))
    whole = np.asarray(loss.call(*given))
    assert np.allclose(parts, whole, rtol=1e-5) == loss.additive
    assert CombinedLoss([loss, SigmoidLoss()], [1.0, 1.0]).additive == loss.additive


@pytest.mark.parametrize("reduction", ["sum", "mean", "sum_over_batch_size"])
def test_reduced_sums_are_those_of_a_call(reduction: str) -> None:
    labels, mask, scores = random_labels(3, 5, seed=1)
    loss = InfoNCE(reduction=reduction)
    total = keras.ops.sum(loss.call(labels, scores.astype(np.float32), mask))
    np.testing.assert_allclose(float(loss.reduced(total, 3)), float(loss(labels, scores, mask)), rtol=1e-6)
    assert isinstance(loss, InBatchLoss)


@pytest.mark.parametrize("arguments", [{"temperature": 0}, {"temperature": float("nan")}, {"bias": float("inf")}])
def test_bad_arguments(arguments) -> None:
    with raises_argument(next(iter(arguments))):
        SigmoidLoss(**arguments)
