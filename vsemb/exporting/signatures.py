"""Signatures of a SavedModel: named inputs, a function of rows, and examples that are checked before publication.

A system with other outputs than embeddings adds a `Signature` to a `ServedModel`, or defines its own `Exportable`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import keras
import numpy as np

from vsemb.exporting.contract import About
from vsemb.exporting.reference_outputs import Arrays, Tie
from vsemb.ops.tensorflow import tf

#: Values by the name of an output, each with the batch as 0th dimension.
Outputs = dict[str, tf.Tensor]

# Maximum difference between the reloaded and the Keras model, relative to the largest entry (1 for unit vectors).
# Another order of additions and other padding gave up to 5e-7 in float32 and 1e-3 in bfloat16 over all recipes. Wrong
# weights, a lost table or other preprocessing give 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 5e-3}
#: Reason for the values of `tolerance_of`.
REASON = (
    "Relative to the largest entry, at least 1. Other batches, processors and libraries add in another order: up to "
    "5e-7 was measured in float32 and 1e-3 in bfloat16; float16 has three bits more. Other weights, tables or "
    "preprocessing give 1e-2 and more."
)


@dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: name of the signature.
        inputs: named inputs, each with the batch as 0th dimension.
        rows: computes the outputs from the inputs by name, eagerly if called outside a graph. One output is `valid`,
            bool (batch,).
        examples: returns golden rows, valid and invalid, for the checks before publication.
        scale: returns output -> minimum that differences are relative to; default 1.
        ties: output -> differences that are allowed, see `vsemb.exporting.reference_outputs.Tie`.
        instance: example row for a curl command, input name -> value as TensorFlow Serving's REST API takes it;
            `{"b64": FILE}` for the content of a file.
        limits: sentences for the model card.
        defaults: input -> value of one row for requests without it. These inputs come last.
    """

    name: str
    inputs: tuple[tf.TensorSpec, ...]
    rows: Callable[..., Outputs]
    examples: Callable[[], Arrays]
    scale: Callable[[], Mapping[str, float]] = dict
    ties: Mapping[str, Tie] = field(default_factory=dict)
    instance: Mapping[str, Any] = field(default_factory=dict)
    limits: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        return function_of(self.rows, *self.inputs, **self.defaults)


class Exportable:
    """Base of the models that `vsemb.exporting.export_savedmodel` writes, checks and publishes.

    Attributes:
        offered: the signatures; the first is also `serving_default`.
        layers: models and layers whose words an export may fold, see `vsemb.exporting.folding`.
    """

    offered: Sequence[Signature]
    layers: Sequence[keras.layers.Layer] = ()

    @property
    def default(self) -> Signature:
        """The signature also named `serving_default`."""
        return self.offered[0]

    @property
    def functions(self) -> dict[str, Any]:
        """The compiled functions by signature name."""
        return {signature.name: signature.function for signature in self.offered}

    @property
    def signatures(self) -> dict[str, Any]:
        """The concrete functions by signature name, `serving_default` first."""
        named = {name: function.get_concrete_function() for name, function in self.functions.items()}
        return {"serving_default": named[self.default.name], **named}

    @property
    def tables(self) -> list[Any]:
        """Lookup tables of the functions."""
        return []

    @property
    def towers(self) -> Mapping[str, Any]:
        """Name -> `vsemb.exporting.formats.towers.Tower`, or the reason for its absence; empty without embeddings."""
        return {}

    @property
    def tolerance(self) -> float:
        """Maximum relative difference between two computations of one row."""
        return tolerance_of(["float32"])

    @property
    def promises(self) -> dict[str, Any]:
        """Fields of the contract that are specific to this kind of model."""
        return {}

    @property
    def about(self) -> About:
        """Sentences for the model card."""
        raise NotImplementedError


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Return the maximum relative difference between two computations in these types.

    Example:

    >>> tolerance_of(["float32", "bfloat16"])
    0.005
    """
    return max(_TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    """Convert arrays to tensors."""
    return {key: tf.constant(values, tf.string if values.dtype == object else None) for key, values in inputs.items()}


def function_of(rows: Callable[..., Outputs], *inputs: tf.TensorSpec, **defaults: Any) -> Any:
    """Compile a function, traced once, with the names of the specs as input names.

    Args:
        rows: computes the outputs from the inputs by name.
        *inputs: specs of the inputs.
        **defaults: default values of the last inputs.
    """
    names = [spec.name for spec in inputs]

    def compiled(*tensors: tf.Tensor) -> Outputs:
        return rows(**dict(zip(names, tensors, strict=True)))

    # TensorFlow reads names and defaults of the inputs from here.
    parameters = [
        inspect.Parameter(
            spec.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=tf.constant(defaults[spec.name], spec.dtype) if spec.name in defaults else inspect.Parameter.empty,
        )
        for spec in inputs
    ]
    compiled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tf.function(compiled, input_signature=inputs, autograph=False)


def embedding_rows(embedding: tf.Tensor, valid: tf.Tensor) -> Outputs:
    """Return the outputs `embedding`, with zeros in invalid rows, and `valid`."""
    here = tf.reshape(valid, [-1] + [1] * (embedding.shape.rank - 1))
    return {"embedding": tf.where(here, embedding, 0.0), "valid": valid}


def one_row_at_least(rows: tf.Tensor) -> tf.Tensor:
    """Add a row of zeros or "" to an empty batch.

    Optimised convolutions of TensorFlow 2.20 fail on empty batches in a graph.
    """
    none = tf.cast(tf.equal(tf.shape(rows)[0], 0), tf.int32)
    return tf.pad(rows, [[0, none], *[[0, 0]] * (rows.shape.rank - 1)])


def first_rows(outputs: Outputs, rows: tf.Tensor) -> Outputs:
    """Return the first `rows` rows of each output."""
    return {name: values[:rows] for name, values in outputs.items()}


def filled_up(values: tf.Tensor, steps: int) -> tf.Tensor:
    """Pad rows with zeros or "" to a fixed number of steps, and truncate longer ones.

    Args:
        values: (batch, any number, ...).
        steps: number of steps of the result.

    Returns:
        (batch, steps, ...), the same type.

    Example:

    >>> filled_up(tf.constant([["a", "dog"]]), 3).numpy().tolist()
    [[b'a', b'dog', b'']]
    """
    missing = tf.maximum(steps - tf.shape(values)[1], 0)
    wider = tf.pad(values, [[0, 0], [0, missing], *[[0, 0]] * (values.shape.rank - 2)])
    return tf.ensure_shape(wider[:, :steps], [values.shape[0], steps, *values.shape[2:]])


def layers_of(*models: keras.layers.Layer) -> list[Any]:
    """Return models and the layers inside them, each once."""
    return list({id(layer): layer for model in models for layer in model._flatten_layers()}.values())


@contextlib.contextmanager
def kernels_for_any_device(*models: keras.layers.Layer) -> Iterator[None]:
    """Disable cuDNN kernels in functions traced inside this context.

    With a GPU, Keras would put cuDNN's recurrent kernels into the graph, which cannot be served without a GPU.
    """
    layers = [layer for layer in layers_of(*models) if hasattr(layer, "use_cudnn")]
    before = [layer.use_cudnn for layer in layers]
    for layer in layers:
        layer.use_cudnn = False
    try:
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer.use_cudnn = value


def score_scale(query: Signature, others: np.ndarray) -> dict[str, float]:
    """Return the scale of rounding errors of scores, which grows with the length of the embeddings.

    Args:
        query: a signature that embeds.
        others: embeddings that are compared with its examples.

    Returns:
        `{"scores": scale}`, as `Signature.scale` gives it.
    """
    embedded = query.rows(**tensors(query.examples()))["embedding"].numpy()
    scale = float(np.prod([np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]))
    # Infinite embeddings are reported by the comparison.
    return {"scores": max(1.0, scale) if np.isfinite(scale) else 1.0}
