"""Normal distributions by hand, against loops, and against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.losses.slow import finite_differences
from tests.raising import raises_argument
from tests.systems.probabilistic.slow import rows, slow_distance, slow_divergence
from vsemb.systems.probabilistic.gaussians import (
    divergence,
    sampled_distance,
    sampled_distance_matrix,
    split_rows,
    total_variance,
    with_start,
)


def test_by_hand() -> None:
    # Means (1, 0) and (0.6, 0.8): 0.16 + 0.64 = 0.8. Variances 1 + 2 and 0.5 + 0.25: 3.75.
    first = [1.0, 0.0, 0.0, math.log(2)]
    second = [0.6, 0.8, math.log(0.5), math.log(0.25)]
    np.testing.assert_allclose(sampled_distance(np.array(first), np.array(second)), 4.55, rtol=1e-6)
    np.testing.assert_allclose(total_variance(np.array([first, second])), [3, 0.75], rtol=1e-6)
    # ((1 + 1 - 1 - 0) + (0 + 2 - 1 - log 2)) / 2 / 2 = (2 - log 2) / 4.
    np.testing.assert_allclose(divergence(np.array(first)), (2 - math.log(2)) / 4, rtol=1e-6)
    np.testing.assert_allclose(total_variance(with_start(np.zeros((1, 6)), 0.3)), [0.3], rtol=1e-6)
    with raises_argument("embedding_dim"):
        split_rows(np.zeros((2, 3)))


def test_it_is_the_mean_squared_distance_of_samples() -> None:
    (first,), (second,) = rows(1, 3, 1), rows(1, 3, 2)
    generator, count = np.random.default_rng(0), 200_000

    def samples(row: np.ndarray) -> np.ndarray:
        return row[:3] + np.exp(row[3:] / 2) * generator.normal(size=(count, 3))

    squares = ((samples(first) - samples(second)) ** 2).sum(axis=1)
    # Four standard errors of the mean.
    assert abs(squares.mean() - float(sampled_distance(first, second))) < 4 * squares.std() / math.sqrt(count)
    assert 4 * squares.std() / math.sqrt(count) < 0.01 * squares.mean()


def test_the_matrix_equals_loops_forward_and_gradient() -> None:
    images, texts = rows(4, 5, 3), rows(3, 5, 4)
    weights = np.random.default_rng(5).normal(size=(4, 3))

    def slow(values: np.ndarray) -> np.ndarray:
        return np.array([[slow_distance(u, v) for v in texts] for u in values])

    variable = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(variable)
        distances = sampled_distance_matrix(variable, texts)
        total = tf.reduce_sum(distances * tf.constant(weights, tf.float32))
    np.testing.assert_allclose(distances, slow(images), rtol=1e-5)
    expected = finite_differences(lambda values: (weights * slow(values)).sum(), images.astype(np.float64))
    np.testing.assert_allclose(tape.gradient(total, variable), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sampled_distance(images[:, None], texts[None]), slow(images), rtol=1e-5)


@pytest.mark.parametrize("log_variance", [-12.0, 0.0, 2.0])
def test_the_divergence_equals_loops(log_variance: float) -> None:
    values = rows(6, 4, 7, log_variance)
    np.testing.assert_allclose(divergence(values), [slow_divergence(row) for row in values], rtol=1e-5)
    # The standard normal distribution has the smallest.
    assert (np.asarray(divergence(values)) > 0).all()
