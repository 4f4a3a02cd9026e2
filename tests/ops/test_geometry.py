"""`l2_normalize` against hand-made triangles, at the ends of float32, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.ops.geometry import l2_normalize


def test_known_triangles() -> None:
    # 3-4-5 and 1-2-2: norms 5 and 3.
    result = l2_normalize(np.array([[3.0, 4.0, 0.0], [1.0, 2.0, 2.0]], np.float32)).numpy()
    np.testing.assert_allclose(result, [[0.6, 0.8, 0.0], [1 / 3, 2 / 3, 2 / 3]], rtol=1e-6)
    # However many axes are before the last.
    sets = l2_normalize(np.array([[[3.0, 4.0, 0.0], [1.0, 2.0, 2.0]]], np.float32))
    np.testing.assert_array_equal(sets[0], result)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e15])
def test_unit_length_at_any_scale(scale: float) -> None:
    x = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32) * np.float32(scale)
    norms = np.linalg.norm(l2_normalize(x).numpy().astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


def test_zero_stays_zero_with_a_finite_gradient() -> None:
    x = tf.Variable(tf.zeros((1, 4)))
    with tf.GradientTape() as tape:
        y = l2_normalize(x)
        total = tf.reduce_sum(y)
    assert not y.numpy().any()
    # x / sqrt(1e-12): slope 1e6 in each direction.
    np.testing.assert_allclose(tape.gradient(total, x).numpy(), 1e6, rtol=1e-4)


def test_bfloat16_is_computed_in_float32() -> None:
    x = np.random.default_rng(1).normal(size=(2, 1000)).astype(np.float32)
    low = tf.cast(x, tf.bfloat16)
    result = l2_normalize(low)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(np.linalg.norm(result.numpy(), axis=1), 1, rtol=1e-5)


def test_other_axis() -> None:
    x = np.array([[3.0, 1.0], [4.0, 0.0]], np.float32)
    np.testing.assert_allclose(l2_normalize(x, axis=0).numpy(), [[0.6, 1.0], [0.8, 0.0]], rtol=1e-6)


@pytest.mark.parametrize("rows", [3, 16, 37, 1003])
def test_equal_vectors_stay_equal_wherever_they_stand(rows: int) -> None:
    # Vector units treat the last rows of a batch otherwise; a duplicate must tie with its original.
    vector = np.random.default_rng(2).normal(size=7).astype(np.float32)
    result = l2_normalize(np.tile(vector, (rows, 1))).numpy()
    assert (result == result[0]).all()
