"""Order violations against the oracle, a slow NumPy reference, and the properties of a partial order."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from vsemb.ops.order import order_violation, order_violation_matrix

# One term; less than, exactly and more than the 16 that a step adds up; more columns than a block has.
# More rows than columns; more rows than a block has.
SHAPES = [(1, 1, 1), (3, 5, 7), (5, 3, 16), (5, 9, 50), (2, 21, 18), (12, 11, 3)]


@pytest.fixture(params=["compiled", "broadcasting"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compute the matrix: the compiled one, and that for few numbers."""
    for name in ("_FEW", "_FEW_IN_GRAPH"):
        monkeypatch.setattr(f"vsemb.ops.order.{name}", 0 if request.param == "compiled" else 1 << 30)
    for name in ("_ROWS", "_COLUMNS"):
        monkeypatch.setattr(f"vsemb.ops.order.{name}", 10)


pytestmark = pytest.mark.usefixtures("way")


def points(n: int, m: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(n + m + dim)
    return generator.random((n, dim)).astype(np.float32), generator.random((m, dim)).astype(np.float32)


def slow(specific: np.ndarray, general: np.ndarray) -> np.ndarray:
    return np.square(np.maximum(0, general[None] - specific.astype(float)[:, None])).sum(axis=-1)


def test_oracle() -> None:
    case = oracle("order_violation_matrix")
    specific, general = (np.array(case.inputs[name], np.float32) for name in ("specific", "general"))
    np.testing.assert_allclose(order_violation_matrix(specific, general), case.expected["E"], **TOLERANCE)
    reversed_ = order_violation_matrix(general, specific)
    np.testing.assert_allclose(np.transpose(reversed_), case.expected["E_reversed_arguments"], **TOLERANCE)
    rows = order_violation(specific, general)
    np.testing.assert_allclose(rows, np.diag(case.expected["E"]), **TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_matrix_and_gradient_equal_the_slow_ones(shape: tuple[int, int, int]) -> None:
    specific, general = map(tf.constant, points(*shape))
    weights = np.random.default_rng(0).normal(size=shape[:2]).astype(np.float32)
    with tf.GradientTape() as tape:
        tape.watch([specific, general])
        result = order_violation_matrix(specific, general)
        total = tf.reduce_sum(weights * result)
    assert result.dtype == tf.float32
    # Sums of up to 50 float32 terms of order 1.
    np.testing.assert_allclose(result, slow(specific.numpy(), general.numpy()), rtol=1e-5, atol=1e-6)
    gradients = tape.gradient(total, [specific, general])
    # dE/dy = 2 max(0, y - x), dE/dx the same with a minus.
    over = np.maximum(0, general.numpy()[None].astype(float) - specific.numpy()[:, None])
    slope = 2 * weights[..., None] * over
    # Sums of terms of both signs.
    np.testing.assert_allclose(gradients[0], -slope.sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[1], slope.sum(0), rtol=1e-4, atol=1e-5)


def test_one_gradient_can_be_asked_for_alone() -> None:
    specific, general = map(tf.constant, points(3, 4, 5))
    with tf.GradientTape() as tape:
        tape.watch(general)
        total = tf.reduce_sum(order_violation_matrix(specific, general))
    over = np.maximum(0, general.numpy()[None] - specific.numpy()[:, None])
    np.testing.assert_allclose(tape.gradient(total, general), 2 * over.sum(0), rtol=1e-5)


def test_rows_are_the_diagonal_of_the_matrix() -> None:
    specific, general = points(9, 9, 20)
    matrix = order_violation_matrix(specific, general).numpy()
    np.testing.assert_allclose(order_violation(specific, general), np.diag(matrix), rtol=1e-5)


def test_it_is_a_partial_order() -> None:
    low, high = points(6, 6, 4)
    middle = np.minimum(low, high)
    # Whatever is smaller in every coordinate lies above; the origin above all.
    assert not order_violation(low, middle).numpy().any()
    assert not order_violation(middle, middle * 0.5).numpy().any()
    assert not order_violation(low, middle * 0.5).numpy().any()
    assert not order_violation_matrix(low, np.zeros((1, 4), np.float32)).numpy().any()
    assert (order_violation(middle * 0.5, low).numpy() > 0).all()


@pytest.mark.parametrize("rows", [3, 37, 103])
def test_equal_points_have_equal_scores_wherever_they_stand(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # 37 are one block, 103 three, the last of another size; a duplicate must tie with its original.
    for name in ("_ROWS", "_COLUMNS"):
        monkeypatch.setattr(f"vsemb.ops.order.{name}", 50)
    specific, general = points(2, 1, 19)
    matrix = order_violation_matrix(specific, np.tile(general, (rows, 1))).numpy()
    assert (matrix == matrix[:, :1]).all()
    transposed = order_violation_matrix(np.tile(general, (rows, 1)), specific).numpy()
    assert (transposed == transposed[:1]).all()


def test_in_a_graph_of_unknown_shapes() -> None:
    unknown = tf.TensorSpec([None, None], tf.float32)
    function = tf.function(order_violation_matrix, autograph=False, input_signature=[unknown, unknown])
    for shape in [(3, 5, 7), (4, 2, 30)]:
        specific, general = points(*shape)
        np.testing.assert_allclose(function(specific, general), slow(specific, general), rtol=1e-5, atol=1e-6)


def test_in_a_graph_of_known_shapes() -> None:
    specific, general = points(3, 5, 40)
    matrix = tf.function(order_violation_matrix, autograph=False)(tf.constant(specific), tf.constant(general))
    np.testing.assert_allclose(matrix, slow(specific, general), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("in_graph", "compiles"), [(False, False), (True, True)])
def test_middle_sizes_are_compiled_in_graphs_alone(
    monkeypatch: pytest.MonkeyPatch, in_graph: bool, compiles: bool
) -> None:
    monkeypatch.undo()
    calls = []
    monkeypatch.setattr("vsemb.ops.order._matrix", lambda x, y: calls.append(1) or tf.zeros((64, 64)))
    function = tf.function(order_violation_matrix, autograph=False) if in_graph else order_violation_matrix
    for dim in (4, 64):  # 16,384 numbers and 262,144
        function(*(tf.constant(x) for x in points(64, 64, dim)))
    assert len(calls) == (1 if compiles else 0)


def test_bfloat16_is_computed_in_float32() -> None:
    specific, general = (tf.cast(x, tf.bfloat16) for x in points(3, 4, 100))
    result = order_violation_matrix(specific, general)
    assert result.dtype == tf.float32
    exact = slow(tf.cast(specific, tf.float32).numpy(), tf.cast(general, tf.float32).numpy())
    np.testing.assert_allclose(result, exact, rtol=1e-5)


def test_nothing_against_something() -> None:
    specific, general = points(0, 3, 5)
    assert order_violation_matrix(specific, general).shape == (0, 3)
