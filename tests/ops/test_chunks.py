"""Functions in chunks equal those at once: values, gradients, states; on JAX, see `tests/models/test_backends.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from vsemb.ops.chunks import map_in_chunks, sum_in_blocks
from vsemb.ops.replicas import sum_over_ring

ROWS = 7
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
BIAS = np.array([0.5, -1.0], np.float32)

# TensorFlow's tanh errs by some 1e-7, which chunk numbers up to 7 and the sine multiply by up to 150.
SAME = {"rtol": 1e-4, "atol": 2e-5}


def layer(rows: Any, weights: Any, state: Any) -> tuple[Any, list[Any]]:
    """A dense layer whose chunks are scaled by their number, from the state on."""
    scale = ops.cast(state[0], "float32")
    return scale * ops.tanh(ops.matmul(rows, weights[0]) + weights[1]), [state[0] + 1]


def gradients(chunk_size: int, first: int = 1) -> list[np.ndarray]:
    """Of a function of the results, with rows picked out so that their gradient comes as a list."""
    kernel, bias = tf.constant(KERNEL), tf.constant(BIAS)
    with tf.GradientTape() as tape:
        tape.watch([kernel, bias])
        results, state = map_in_chunks(layer, tf.constant(X), chunk_size, [kernel, bias], [tf.constant(first)])
        loss = tf.reduce_sum(tf.sin(3.0 * tf.gather(results, [0, 2, 2, 6])))
    return [results, state[0], *tape.gradient(loss, [kernel, bias])]


def by_hand(chunk_size: int, first: int = 1) -> list[np.ndarray]:
    number = first + np.arange(ROWS) // chunk_size
    z = np.tanh(X @ KERNEL + BIAS)
    y = number[:, None] * z
    times = np.array([1, 0, 2, 0, 0, 0, 1])[:, None]
    d = times * 3 * np.cos(3 * y) * number[:, None] * (1 - z**2)
    return [y, np.array(first - (-ROWS // chunk_size)), X.T @ d, d.sum(axis=0)]


@pytest.mark.parametrize(("size", "eager"), [(1, True), (3, True), (7, True), (9, True), (3, False)])
def test_a_map_by_hand(size: int, eager: bool) -> None:
    run = gradients if eager else tf.function(gradients, autograph=False)
    for result, expected in zip(run(size), by_hand(size), strict=True):
        np.testing.assert_allclose(result, expected, **SAME)


def test_nothing_to_train_and_nothing_to_hand_on() -> None:
    results, state = map_in_chunks(lambda x, weights, state: (x * 2.0, state), tf.constant(X), 3, [])
    np.testing.assert_allclose(results, 2 * X)
    assert state == []
    results, _ = map_in_chunks(lambda x, weights, state: (x * 2.0, state), tf.constant(X[:0]), 3, [])
    assert results.shape == (0, 3)


def test_the_gradient_of_a_table_is_dense() -> None:
    table, ids = tf.constant(X), tf.constant([[1, 1, 4], [0, 1, 2]])
    with tf.GradientTape() as tape:
        tape.watch(table)
        results, _ = map_in_chunks(lambda x, w, s: (tf.gather(w[0], x), s), ids, 1, [table])
        loss = tf.reduce_sum(results)
    np.testing.assert_array_equal(tape.gradient(loss, table)[:, 0], [1, 3, 1, 0, 1, 0, 0])


def test_a_graph_holds_no_chunk_for_later() -> None:
    # What a loop keeps of each turn for its gradient, TensorFlow puts on lists.
    kernel, bias = tf.constant(KERNEL), tf.constant(BIAS)

    def pushes(forward: Any) -> int:
        @tf.function
        def step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch([kernel, bias])
                loss = tf.reduce_sum(forward(x) ** 2)
            return tape.gradient(loss, [kernel, bias])

        graph = step.get_concrete_function(tf.TensorSpec((None, 3))).graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return sum(node.op == "TensorListPushBack" for node in nodes)

    def recorded(x: Any) -> Any:
        body = lambda k, total: (k + 1, total + layer(x, [kernel, bias], [k])[0])  # noqa: E731
        return tf.while_loop(lambda k, _: k < 3, body, (0, tf.zeros_like(x[:, :2])))[1]

    assert pushes(recorded) > 0
    assert pushes(lambda x: map_in_chunks(layer, x, 3, [kernel, bias], [tf.constant(1)])[0]) == 0


def products(rows: Any, whole: Any) -> Any:
    """A scalar of all pairs of rows of a block with all columns, with an integer among the rows."""
    scores = ops.matmul(rows[0], ops.transpose(whole[0])) * whole[1]
    return ops.sum(ops.cast(rows[1][:, None], "float32") * ops.tanh(scores))


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("size", "graph"), [(1, False), (3, False), (7, False), (9, False), (3, True)])
def test_a_sum_by_hand(size: int, graph: bool, gradient: bool) -> None:
    numbers, factor = np.arange(ROWS), np.float32(0.5)

    def run(x: Any, y: Any, factor: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y, factor])
            value = sum_in_blocks(products, [x, tf.range(tf.shape(x)[0])], [y, factor], size, gradient=gradient)
            loss = 2.0 * value
        return [value, *tape.gradient(loss, [x, y, factor])]

    if graph:
        signature = [tf.TensorSpec((None, 3)), tf.TensorSpec((None, 3)), tf.TensorSpec(())]
        run = tf.function(run, input_signature=signature, autograph=False)
    y = X[::-1] + 1
    z = np.tanh(0.5 * X @ y.T)
    d = 2 * numbers[:, None] * (1 - z**2)
    expected = [(numbers[:, None] * z).sum(), 0.5 * d @ y, 0.5 * d.T @ X, (d * (X @ y.T)).sum()]
    for result, other in zip(run(*map(tf.constant, (X, y, factor))), expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)


def test_one_device_is_a_ring_of_one() -> None:
    seen = []

    def function(passed: Any, turn: int, kept: Any) -> Any:
        seen.append(turn)
        return ops.sum(passed[0] * kept[0])

    assert float(sum_over_ring(function, [ops.ones(3)], [ops.arange(3, dtype="float32")])) == 3.0
    assert seen == [0]
