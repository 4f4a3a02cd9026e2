"""Hyperbolic geometry by hand, against the textbook forms in float64, and its properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from vsemb.ops.lorentz import (
    MOST,
    cone_violation,
    cone_violation_matrix,
    exponential_map,
    exterior_angle,
    half_aperture,
    lorentz_distance,
    lorentz_distance_matrix,
)

# float32, through an inverse sine or cosine of nearly 1.
NEAR = {"rtol": 1e-4, "atol": 2e-4}


def vectors(n: int, dim: int, seed: int, scale: float = 0.7) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=(n, dim))).astype(np.float32)


def lifted(v: np.ndarray, c: float = 1.0) -> tuple[list[float], float]:
    """Space and time of the exponential map at the root, with the curvature -c, in plain Python."""
    norm = math.sqrt(sum(float(x) ** 2 for x in v))
    factor = math.sinh(math.sqrt(c) * norm) / (math.sqrt(c) * norm) if norm else 1.0
    space = [factor * float(x) for x in v]
    return space, math.sqrt(1 / c + sum(x * x for x in space))


def inner(u: np.ndarray, v: np.ndarray, c: float = 1.0) -> float:
    (x, x_time), (y, y_time) = lifted(u, c), lifted(v, c)
    return sum(a * b for a, b in zip(x, y, strict=True)) - x_time * y_time


def slow_distance(u: np.ndarray, v: np.ndarray, c: float = 1.0) -> float:
    return math.sqrt(1 / c) * math.acosh(max(-c * inner(u, v, c), 1.0))


def slow_angle(u: np.ndarray, v: np.ndarray, c: float = 1.0) -> float:
    (x, x_time), (_, y_time), product = lifted(u, c), lifted(v, c), c * inner(u, v, c)
    norm = math.sqrt(sum(a * a for a in x))
    return math.acos(max(-1.0, min(1.0, (y_time + x_time * product) / (norm * math.sqrt(product**2 - 1)))))


def slow_aperture(u: np.ndarray, c: float = 1.0, k: float = 0.1) -> float:
    norm = math.sqrt(sum(a * a for a in lifted(u, c)[0]))
    return math.asin(min(1.0, 2 * k / (math.sqrt(c) * norm)))


def slow_violation(specific: np.ndarray, general: np.ndarray, c: float = 1.0, k: float = 0.1) -> float:
    return max(0.0, slow_angle(general, specific, c) - slow_aperture(general, c, k))


def of_all(function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([[function(u, v) for v in y] for u in x])


def test_by_hand() -> None:
    # sinh(ln 2) = 3/4 and cosh(ln 2) = 5/4; sinh(ln 3) = 4/3 and cosh(ln 3) = 5/3.
    x, y = np.array([math.log(2), 0.0]), np.array([0.0, math.log(3)])
    space, time = exponential_map(x)
    np.testing.assert_allclose([*space, time], [3 / 4, 0, 5 / 4], rtol=1e-6)
    # Orthogonal: cosh d = 5/4 * 5/3 = 25/12, and sinh² d = 481/144.
    np.testing.assert_allclose(lorentz_distance(x, y), math.acosh(25 / 12), rtol=1e-6)
    # cos e = (5/3 - 5/4 * 25/12) / (3/4 * sqrt(481)/12) = -15 / sqrt(481).
    np.testing.assert_allclose(exterior_angle(x, y), math.acos(-15 / math.sqrt(481)), rtol=1e-6)
    np.testing.assert_allclose(half_aperture(x), math.asin(0.2 / 0.75), rtol=1e-6)
    violation = math.acos(-15 / math.sqrt(481)) - math.asin(0.2 / 0.75)
    np.testing.assert_allclose(cone_violation(y, x), violation, rtol=1e-6)
    np.testing.assert_allclose(half_aperture(x, 0.3), math.asin(0.6 / 0.75), rtol=1e-6)
    np.testing.assert_allclose(cone_violation(y, x, 0.3), violation + math.asin(0.2 / 0.75) - math.asin(0.8), rtol=1e-6)


@pytest.mark.parametrize(("dim", "scale"), [(2, 0.05), (3, 0.7), (50, 0.2), (8, 2.0)])
def test_textbook_forms_of_all_pairs(dim: int, scale: float) -> None:
    x, y = vectors(5, dim, 0, scale), vectors(7, dim, 1, scale)
    for slow, pairs, matrix in (
        (slow_distance, lorentz_distance, lorentz_distance_matrix),
        (slow_violation, cone_violation, cone_violation_matrix),
    ):
        expected = of_all(slow, x, y)
        computed = matrix(x, y)
        assert computed.dtype == tf.float32
        np.testing.assert_allclose(computed, expected, **NEAR)
        np.testing.assert_allclose(pairs(x[:, None], y), expected, **NEAR)
    np.testing.assert_allclose(exterior_angle(x[:, None], y), of_all(slow_angle, x, y), **NEAR)
    np.testing.assert_allclose(half_aperture(x), [slow_aperture(u) for u in x], **NEAR)


@pytest.mark.parametrize("curvature", [0.1, 3.0, 10.0])
def test_a_learned_curvature_only_scales(curvature: float) -> None:
    """The curvature -c is the curvature -1 of vectors times sqrt(c), with distances divided by sqrt(c)."""
    x, y, root = vectors(4, 6, 2, 0.3), vectors(4, 6, 3, 0.3), math.sqrt(curvature)
    distances = [slow_distance(u, v, curvature) for u, v in zip(x, y, strict=True)]
    np.testing.assert_allclose(lorentz_distance(root * x, root * y) / root, distances, **NEAR)
    violations = [slow_violation(u, v, curvature) for u, v in zip(x, y, strict=True)]
    np.testing.assert_allclose(cone_violation(root * x, root * y), violations, **NEAR)


@pytest.mark.parametrize(
    ("function", "slow"),
    [
        (lorentz_distance, slow_distance),
        (cone_violation, slow_violation),
        (lambda x, y: lorentz_distance_matrix(x[None], y[None])[0, 0], slow_distance),
        (lambda x, y: cone_violation_matrix(x[None], y[None])[0, 0], slow_violation),
    ],
)
def test_gradients_are_finite_differences(function, slow) -> None:
    x, y = vectors(2, 5, 4)
    with tf.GradientTape() as tape:
        points = [tf.constant(x), tf.constant(y)]
        tape.watch(points)
        value = function(*points)
    gradients, step = tape.gradient(value, points), 1e-5
    assert float(value) > 0.1
    for place in range(2):
        for entry in range(5):
            ends = []
            for sign in (1, -1):
                moved = [x.astype(float), y.astype(float)]
                moved[place][entry] += sign * step
                ends.append(slow(*moved))
            assert float(gradients[place][entry]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3, abs=1e-3)


POINT = [0.6, -0.3, 0.2]
ODD = {
    "both are the root": ([0, 0, 0], [0, 0, 0]),
    "the first is the root": ([0, 0, 0], POINT),
    "the second is the root": (POINT, [0, 0, 0]),
    "equal": (POINT, POINT),
    "opposite": (POINT, [-0.6, 0.3, -0.2]),
    "far": ([1e3, 0, 0], [0, -1e4, 0]),
    "nearly the root": ([1e-9, 0, 0], [0, 1e-9, 0]),
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("way", ["pairs", "matrix"])
def test_values_and_gradients_are_finite(case: str, way: str) -> None:
    x, y = (tf.constant([point], tf.float32) for point in ODD[case])
    distance, violation = {
        "pairs": (lorentz_distance, cone_violation),
        "matrix": (lorentz_distance_matrix, cone_violation_matrix),
    }[way]
    for function in (distance, violation):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            value = tf.reduce_sum(function(x, y))
        gradients = tape.gradient(value, [x, y])
        assert np.isfinite(value) and all(np.isfinite(gradient).all() for gradient in gradients)
        assert all(np.abs(gradient).max() < 1e6 for gradient in gradients)


def test_the_gradient_at_the_root_points_to_the_other_point() -> None:
    x, y = tf.zeros((1, 2)), tf.constant([[3.0, 4.0]])
    for function in (lorentz_distance, lorentz_distance_matrix):
        with tf.GradientTape() as tape:
            tape.watch(x)
            distance = tf.reduce_sum(function(x, y))
        np.testing.assert_allclose(tape.gradient(distance, x), [[-0.6, -0.8]], rtol=1e-4)


def test_points_lie_on_the_hyperboloid() -> None:
    space, time = exponential_map(vectors(20, 4, 5))
    np.testing.assert_allclose(np.square(time) - np.square(space).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(exponential_map(np.zeros(3))[1], 1)


def test_it_is_a_metric() -> None:
    x = vectors(12, 3, 6)
    distances = np.asarray(lorentz_distance(x[:, None], x), float)
    assert (np.diag(distances) == 0).all() and (distances[~np.eye(12, dtype=bool)] > 0).all()
    np.testing.assert_allclose(distances, distances.T, rtol=1e-6)
    assert (distances[:, :, None] + distances[None] >= distances[:, None] - 1e-5).all()
    np.testing.assert_allclose(lorentz_distance(x, np.zeros(3)), np.linalg.norm(x, axis=1), rtol=1e-5)
    # The bound of the docstring, for a matrix.
    own = np.diag(lorentz_distance_matrix(x, x))
    assert (own <= 5e-4 * np.sinh(np.linalg.norm(x, axis=1))).all()


def test_near_the_root_it_is_euclidean_and_far_away_it_is_not() -> None:
    x, y = vectors(2, 3, 7, 1.0)
    euclidean = np.linalg.norm(x - y)
    ratios = [float(lorentz_distance(scale * x, scale * y)) / (scale * euclidean) for scale in (1e-3, 3.0)]
    assert ratios[0] == pytest.approx(1, abs=1e-4) and ratios[1] > 1.1


def test_directions_and_the_order_of_entries_do_not_matter() -> None:
    x, y = vectors(6, 4, 8), vectors(6, 4, 9)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0].astype(np.float32)
    for matrix in (lorentz_distance_matrix, cone_violation_matrix):
        expected = np.asarray(matrix(x, y))
        np.testing.assert_allclose(matrix(x @ turn, y @ turn), expected, **NEAR)
        np.testing.assert_allclose(matrix(x[:, ::-1], y[:, ::-1]), expected, **NEAR)
        np.testing.assert_allclose(matrix(x[::-1], y), expected[::-1], **NEAR)


def test_a_cone_ends_at_its_aperture() -> None:
    """A point at a distance from the apex, in a direction at an angle to the ray from the root."""
    apex, radius = np.array([0.8, 0.0]), 0.8
    aperture = float(half_aperture(apex))
    for length in (0.01, 0.5, 3.0):
        for angle, inside in ((0.99 * aperture, True), (1.01 * aperture, False), (math.pi, False)):
            # Moved along a geodesic at the root and then carried to the apex.
            time = math.cosh(radius) * math.cosh(length) + math.sinh(radius) * math.sinh(length) * math.cos(angle)
            along = math.sinh(radius) * math.cosh(length) + math.cosh(radius) * math.sinh(length) * math.cos(angle)
            across = math.sinh(length) * math.sin(angle)
            space = np.array([along, across])
            point = math.acosh(time) * space / np.linalg.norm(space)
            assert float(lorentz_distance(apex, point)) == pytest.approx(length, rel=1e-3)
            assert float(exterior_angle(apex, point)) == pytest.approx(angle, abs=1e-3)
            assert (float(cone_violation(point, apex)) == 0) == inside


def test_cones_are_transitive() -> None:
    points = vectors(300, 2, 10, 1.0)
    # Nearer to the root, apertures are not narrower than a right angle, and cones are not nested.
    points = points[np.linalg.norm(points, axis=1) > math.asinh(0.2)][:200]
    inside = np.asarray(cone_violation(points[:, None], points)) == 0
    np.fill_diagonal(inside, True)
    assert 200 < inside.sum() < 200**2 / 2
    # A point of a cone, with a slack for rounding: its own cone lies in it.
    reached = (inside.astype(int) @ inside.astype(int)) > 0
    assert np.asarray(cone_violation(points[:, None], points))[reached & ~np.eye(200, dtype=bool)].max() < 1e-3


def test_the_root_entails_everything_and_narrow_cones_are_far_away() -> None:
    points = vectors(5, 3, 11)
    assert (np.asarray(cone_violation_matrix(points, np.zeros((1, 3)))) == 0).all()
    apertures = np.asarray(half_aperture(np.linspace(0.05, MOST + 1, 50)[:, None]))
    assert (np.diff(apertures) <= 0).all() and apertures[-1] > 0 and apertures[0] == pytest.approx(math.pi / 2)


def test_half_precision_is_computed_in_float32() -> None:
    x, y = (tf.cast(vectors(3, 4, seed), tf.bfloat16) for seed in (12, 13))
    exact = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
    for function in (lorentz_distance, lorentz_distance_matrix, cone_violation, cone_violation_matrix):
        assert function(x, y).dtype == tf.float32
        np.testing.assert_array_equal(function(x, y), function(*exact))
