"""InfoNCE: two sums by hand, a double loop, finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import finite_differences, infonce_rows, random_labels
from tests.raising import raises_argument
from vsemb.losses import InfoNCE


def test_by_hand() -> None:
    # Logits after division by 0.5: row 0 (2, 0), row 1 (0, 0).
    # Row 0: log(1 + exp(-2)) = 0.126928; row 1: log 2 = 0.693147; mean 0.410038.
    loss = InfoNCE(temperature=0.5)
    np.testing.assert_allclose(float(loss([[1, 0], [0, 1]], [[1.0, 0.0], [0.0, 0.0]])), 0.410038, rtol=1e-5)
    # Smoothing 0.1 with one negative: row 0 is log(1 + exp(-2)) + 0.1 * (2 - 0).
    value = InfoNCE(0.5, label_smoothing=0.1)([[1, 0]], [[1.0, 0.0]])
    np.testing.assert_allclose(float(value), math.log(1 + math.exp(-2)) + 0.2, rtol=1e-5)
    # By default scores are logits, and nothing is smoothed.
    np.testing.assert_allclose(float(InfoNCE()([[1, 0]], [[2.0, 0.0]])), math.log(1 + math.exp(-2)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (3, 9)])
@pytest.mark.parametrize(("temperature", "smoothing"), [(1.0, 0.0), (0.3, 0.2)])
def test_equals_double_loop_forward_and_gradient(shape, temperature: float, smoothing: float) -> None:
    labels, mask, scores = random_labels(*shape, seed=3)
    loss = InfoNCE(temperature, smoothing)

    def slow(values: np.ndarray) -> float:
        return infonce_rows(labels, mask, values, temperature, smoothing).mean()

    variable = tf.constant(scores.astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = loss(labels, variable, mask)
    np.testing.assert_allclose(float(value), slow(scores), rtol=1e-5)
    # Central differences err by step**2, float32 by 1e-7 times the 1/0.3 of the temperature.
    np.testing.assert_allclose(tape.gradient(value, variable), finite_differences(slow, scores), atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_query_without_negatives_costs_nothing(smoothing: float) -> None:
    variable = tf.constant([[0.1, 0.9]])
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = InfoNCE(label_smoothing=smoothing)([[1, 0]], variable, np.array([[True, False]]))
    assert float(value) == 0
    assert not tape.gradient(value, variable).numpy().any()


@pytest.mark.parametrize("arguments", [{}, {"temperature": 0.07, "label_smoothing": 0.1}])
def test_contract(arguments) -> None:
    check_loss(InfoNCE(**arguments), *random_labels(5, 8, seed=1))
    check_loss(InfoNCE(**arguments, reduction="sum"), *random_labels(5, 8, seed=1))


@pytest.mark.parametrize(
    "arguments",
    [{"temperature": 0}, {"temperature": float("nan")}, {"label_smoothing": 1.0}, {"label_smoothing": -0.1}],
)
def test_bad_arguments(arguments) -> None:
    with raises_argument(next(iter(arguments))):
        InfoNCE(**arguments)
