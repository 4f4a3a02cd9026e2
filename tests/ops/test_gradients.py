"""Custom gradients: the same values in a graph as eagerly, and nothing that stays after the graph."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry

from vsemb.ops.gradients import freed_with_graph


@tf.custom_gradient
def doubled(x: Any) -> Any:
    # Not the gradient of the value, so that it shows which one is used.
    return 2.0 * x, lambda upstream: 7.0 * upstream


@freed_with_graph
def gradient(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(doubled(x))
    return tape.gradient(value, x)


def test_its_gradient_is_used_in_graphs_and_eagerly() -> None:
    x = tf.constant([1.0, 2.0])
    for function in (gradient, tf.function(gradient), tf.function(gradient, jit_compile=True)):
        np.testing.assert_array_equal(function(x), [7.0, 7.0])


def test_a_gradient_that_is_asked_for_after_the_call() -> None:
    forward = tf.function(freed_with_graph(lambda x: tf.reduce_sum(doubled(x))))
    x = tf.constant([1.0, 2.0])
    forward(x)
    gc.collect()
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = forward(x)
    np.testing.assert_array_equal(tape.gradient(value, x), [7.0, 7.0])


def test_gradients_inside_a_loop() -> None:
    @tf.function
    @freed_with_graph
    def looped(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, doubled(y)), (0, x))[1]
        return tape.gradient(value, x)

    np.testing.assert_array_equal(looped(tf.constant([1.0])), [7.0**3])


def test_the_graph_is_freed_with_its_function() -> None:
    function = tf.function(gradient)
    function(tf.constant([1.0, 2.0]))
    graph = weakref.ref(function.get_concrete_function(tf.constant([1.0, 2.0])).graph)
    of_call = set(gradient_registry.list())
    del function
    gc.collect()
    assert graph() is None
    assert len(of_call) > len(set(gradient_registry.list()) & of_call)
