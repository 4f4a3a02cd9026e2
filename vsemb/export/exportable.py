"""What can be written as a SavedModel: signatures, whatever they compute, and how their rows go in and out of graphs.

A system that serves something else than embeddings either adds a `Signature` to a `vsemb.export.ServedModel`, or
writes an `Exportable` of its own.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import keras
import tensorflow as tf

from vsemb.export.contract import About
from vsemb.export.reference_outputs import Arrays, Tie

#: Values by the name of an output, each with the batch as 0th dimension.
Outputs = dict[str, tf.Tensor]

# Largest difference from the Keras model that a reload may show, relative to the largest entry (1 for unit
# vectors). A graph adds the same numbers in another order and over rows padded to another length: up to
# 5e-7 in float32 and, since it rounds in other places, 1e-3 in bfloat16 were seen with all recipes. A wrong
# weight, a lost table or another preprocessing is 1e-2 and more.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 5e-3}
#: Why `tolerance_of` allows as much as it does.
REASON = (
    "Relative to the largest entry (1 at least). Other batches, processors and libraries add the same "
    "numbers in another order: up to 5e-7 was seen in float32 and 1e-3 in bfloat16. Other weights, tables or "
    "preprocessing make 1e-2 and more."
)


@dataclass(frozen=True, eq=False)
class Signature:
    """One signature of a SavedModel.

    Attributes:
        name: its name.
        inputs: its named inputs, each with the batch as 0th dimension.
        rows: computes the outputs, step by step where it is called outside a graph; takes the inputs by name. One of
            the outputs is `valid`, bool (batch,).
        examples: gives golden rows, good and bad, that the signature is tried with before it is published.
        scale: gives, by output, the least that differences are relative to: 1 where it says nothing.
        ties: by output, which differences count for nothing, see `vsemb.export.reference_outputs.Tie`.
        instance: one row as TensorFlow Serving's REST API takes it, for a command that people try; `{"b64": FILE}`
            for the content of a file.
        limits: sentences for the model card.
    """

    name: str
    inputs: tuple[tf.TensorSpec, ...]
    rows: Callable[..., Outputs]
    examples: Callable[[], Arrays]
    scale: Callable[[], Mapping[str, float]] = dict
    ties: Mapping[str, Tie] = field(default_factory=dict)
    instance: Any = None
    limits: Sequence[str] = ()

    @cached_property
    def function(self) -> Any:
        """The compiled function."""
        return function_of(self.rows, *self.inputs)


class Exportable:
    """Something that `vsemb.export.export_savedmodel` can write, try out and publish.

    Attributes:
        offered: the signatures; the first is also `serving_default`.

    Class attributes:
        invalid: what a row that cannot be read is answered by, besides `valid` false.
        made: what the model makes.
        comparable: whether what two versions of the model make can be compared.
    """

    invalid: ClassVar[str] = "zeros"
    made: ClassVar[str] = "outputs"

    offered: Sequence[Signature]

    @property
    def default(self) -> Signature:
        """The signature that is also `serving_default`."""
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
        """Lookup tables that the functions read."""
        return []

    @property
    def tolerance(self) -> float:
        """The largest relative difference that two computations of one row may show."""
        return tolerance_of(["float32"])

    @property
    def promises(self) -> dict[str, Any]:
        """The fields of the contract that only this kind of model knows."""
        return {}

    @property
    def about(self) -> About:
        """The model in sentences, for the model card."""
        raise NotImplementedError


def tolerance_of(dtypes: Iterable[str]) -> float:
    """Returns the largest relative difference between two computations in these types.

    Example:

    >>> tolerance_of(["float32", "bfloat16"])
    0.005
    """
    return max(_TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def tables_of(holder: object) -> list[Any]:
    """Returns the lookup tables among an object's attributes."""
    kinds = tf.lookup.StaticHashTable | tf.lookup.StaticVocabularyTable
    return [value for value in vars(holder).values() if isinstance(value, kinds)]


def tensors(inputs: Arrays) -> dict[str, tf.Tensor]:
    """Returns arrays as TensorFlow's tensors."""
    return {key: tf.constant(values, tf.string if values.dtype == object else None) for key, values in inputs.items()}


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
