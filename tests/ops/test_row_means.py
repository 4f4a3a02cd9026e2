"""Means of rows: the fast way and the one of other backends against NumPy, values and gradients."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME
from vsemb.ops.row_means import mean_rows, unique_rows

TABLE = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
# Equal lists, an empty one, a row that occurs twice, and gaps.
NUMBERS = np.array([[[1, 5, 3], [0, 0, 0]], [[1, 5, 3], [2, 2, 0]], [[0, 4, 0], [1, 5, 3]]], np.int32)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_values_and_gradients_are_those_of_numpy(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    upstream = np.random.default_rng(1).normal(size=(3, 2, 4)).astype(np.float32)
    expected, gradient = np.zeros((3, 2, 4)), np.zeros((6, 4))
    for place in np.ndindex(3, 2):
        present = [number for number in NUMBERS[place] if number]
        for number in present:
            expected[place] += TABLE[number] / len(present)
            gradient[number] += upstream[place] / len(present)
    table = tf.Variable(TABLE)
    with tf.GradientTape() as tape:
        means = mean_rows(table, tf.constant(NUMBERS))
        total = tf.reduce_sum(means * upstream)
    np.testing.assert_allclose(means, expected, **SAME)
    np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(total, table)), gradient, **SAME)


def test_no_rows_and_shapes_that_a_graph_does_not_know() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.int32)])
    def traced(numbers: tf.Tensor) -> tf.Tensor:
        return mean_rows(tf.constant(TABLE), numbers)

    np.testing.assert_allclose(traced(NUMBERS), mean_rows(tf.constant(TABLE), tf.constant(NUMBERS)), **SAME)
    assert traced(NUMBERS[:0]).shape == (0, 2, 4)


def test_distinct_tokens_are_in_their_first_order() -> None:
    for tokens in ([3, 1, 3], [[3, 0], [1, 2], [3, 0]]):
        distinct, places = unique_rows(tf.constant(tokens))
        assert places.numpy().tolist() == [0, 1, 0] and distinct.numpy().tolist() == tokens[:2]
