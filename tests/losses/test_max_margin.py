"""Max-margin against the oracle and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.losses.max_margin import MaxMargin
from vsemb.ops.order import order_violation


def test_oracle() -> None:
    case = oracle("hypernym_max_margin")
    pairs = np.array(case.inputs["positives"] + case.inputs["negatives"], np.float32)
    labels = np.repeat([1, 0], [len(case.inputs["positives"]), len(case.inputs["negatives"])])
    energies = order_violation(pairs[:, 0], pairs[:, 1])
    expected = case.expected["E_positive"] + case.expected["E_negative"]
    np.testing.assert_allclose(energies, expected, **TOLERANCE)
    loss = MaxMargin(case.inputs["margin"])
    np.testing.assert_allclose(float(loss(labels, energies)), case.expected["sum"], **TOLERANCE)
    mean = MaxMargin(case.inputs["margin"], reduction="sum_over_batch_size")
    expected_mean = case.expected["mean_over_all_pairs_as_in_torch_code"]
    np.testing.assert_allclose(float(mean(labels, energies)), expected_mean, **TOLERANCE)


def test_one_value_a_pair() -> None:
    loss = MaxMargin(2.0)
    # True pairs pay their energy, also beyond the margin; false ones what they lack.
    rows = loss.call(np.array([1, 1, 0, 0]), np.array([0.5, 3.0, 0.5, 3.0], np.float32))
    np.testing.assert_allclose(rows, [0.5, 3.0, 1.5, 0.0])
    np.testing.assert_allclose(MaxMargin().call(np.array([0]), np.array([0.25])), [0.75])


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "bool"])
def test_labels_of_any_type(dtype: str) -> None:
    labels = np.array([1, 0]).astype(dtype)
    np.testing.assert_allclose(MaxMargin(1.0).call(labels, np.array([0.25, 0.25])), [0.25, 0.75])


def test_gradient_pulls_true_pairs_and_pushes_false_ones_within_the_margin() -> None:
    energies = tf.constant([0.5, 0.5, 1.5])
    with tf.GradientTape() as tape:
        tape.watch(energies)
        total = MaxMargin(1.0)(np.array([1, 0, 0]), energies)
    np.testing.assert_allclose(tape.gradient(total, energies), [1, -1, 0])


def test_config_and_low_precision() -> None:
    rebuilt = check_config(MaxMargin(0.3, reduction="sum_over_batch_size"))
    assert rebuilt.margin == 0.3
    assert MaxMargin()(np.array([1]), tf.constant([0.5], tf.bfloat16)).dtype == tf.float32


@pytest.mark.parametrize("margin", [0, -1.0, float("nan"), float("inf")])
def test_margins_that_are_not_allowed(margin: float) -> None:
    with raises_argument("margin"):
        MaxMargin(margin)
