"""Rows in graph: functions of an open batch, and what runs on any device."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

#: Values by the name of an output, each with the batch as 0th dimension.
Outputs = dict[str, tf.Tensor]


def function_of(rows: Callable[..., Outputs], *inputs: tf.TensorSpec) -> Any:
    """Returns a compiled function, traced once, whose inputs are named as the specs are."""
    names = [spec.name for spec in inputs]

    def compiled(*tensors: tf.Tensor) -> Outputs:
        return rows(**dict(zip(names, tensors, strict=True)))

    # TensorFlow reads names from here; inputs that `rows` may do without are none of these.
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    compiled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(compiled, input_signature=inputs, autograph=False)


def embedding_rows(embedding: tf.Tensor, valid: tf.Tensor) -> Outputs:
    """Returns embeddings as they are served: zeros where a row is not valid."""
    here = tf.reshape(valid, [-1] + [1] * (embedding.shape.rank - 1))
    return {"embedding": tf.where(here, embedding, 0.0), "valid": valid}


def one_row_at_least(rows: tf.Tensor) -> tf.Tensor:
    """Adds a row of zeros or "" to a batch of none.

    TensorFlow 2.20's optimised convolutions fail on an empty batch in a graph.
    """
    none = tf.cast(tf.equal(tf.shape(rows)[0], 0), tf.int32)
    return tf.pad(rows, [[0, none], *[[0, 0]] * (rows.shape.rank - 1)])


def first_rows(outputs: Outputs, rows: tf.Tensor) -> Outputs:
    """Returns so many rows of each output."""
    return {name: values[:rows] for name, values in outputs.items()}


def filled_up(values: tf.Tensor, steps: int) -> tf.Tensor:
    """Fills rows up with zeros or "" to a fixed number of steps, and cuts longer ones.

    Args:
        values: (batch, any number, ...).
        steps: of the result.

    Returns:
        (batch, steps, ...), the same type.

    Example:

    >>> filled_up(tf.constant([["a", "dog"]]), 3).numpy().tolist()
    [[b'a', b'dog', b'']]
    """
    missing = tf.maximum(steps - tf.shape(values)[1], 0)
    wider = tf.pad(values, [[0, 0], [0, missing], *[[0, 0]] * (values.shape.rank - 2)])
    return tf.ensure_shape(wider[:, :steps], [values.shape[0], steps, *values.shape[2:]])


@contextlib.contextmanager
def kernels_for_any_device(*models: keras.layers.Layer) -> Iterator[None]:
    """Keeps cuDNN out of what is traced inside.

    On a machine with a GPU, Keras puts cuDNN's recurrent kernels into the graph, and a SavedModel
    with them cannot be served without a GPU.
    """
    found = {id(layer): layer for model in models for layer in model._flatten_layers()}
    layers = [layer for layer in found.values() if hasattr(layer, "use_cudnn")]
    before = [layer.use_cudnn for layer in layers]
    for layer in layers:
        layer.use_cudnn = False
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.use_cudnn = value
