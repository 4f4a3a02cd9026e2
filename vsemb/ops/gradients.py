"""Custom gradients that are freed with the graph that they were traced in."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import keras

from vsemb.ops.tensorflow import tf

_P = ParamSpec("_P")
_R = TypeVar("_R")


def freed_with_graph(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Free custom gradients that a function traces when its graph is freed.

    TensorFlow registers the gradient of each call of a `tf.custom_gradient` in a graph under a new name, and keeps it
    until the process ends. With it, it keeps the graph, and the weights of a model that was trained and deleted. Keras'
    sum of gradients over replicas is such a function.

    Args:
        function: a function that is called in a graph, such as the step of a model.

    Returns:
        The function; the same one on backends other than TensorFlow.

    Example:

    >>> @tf.custom_gradient
    ... def double(x):
    ...     return 2.0 * x, lambda upstream: 2.0 * upstream
    >>> float(tf.function(freed_with_graph(double))(tf.constant(3.0)))
    6.0
    """
    if keras.backend.backend() != "tensorflow":
        return function

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if tf.executing_eagerly():
            return function(*args, **kwargs)
        from tensorflow.python.framework.ops import gradient_registry

        registered = gradient_registry._registry
        before = set(registered)
        result = function(*args, **kwargs)
        graph = tf.compat.v1.get_default_graph()
        for name in set(registered) - before:
            _tie(registered, name, graph)
        return result

    return call


def _tie(registered: dict[str, dict[str, Any]], name: str, graph: Any) -> None:
    """Let the graph hold a registered gradient, and the registry a weak reference to it."""
    entry = registered[name]
    gradient = entry["type"]
    weak = weakref.ref(gradient)

    def found(*arguments: Any) -> Any:
        own = weak()
        # Whoever asks for a gradient has an operation, and so the graph.
        assert own is not None
        return own(*arguments)

    entry["type"] = found
    if not hasattr(graph, "_vsemb_gradients"):
        graph._vsemb_gradients = []
    graph._vsemb_gradients.append(gradient)
    weakref.finalize(graph, registered.pop, name, None)
