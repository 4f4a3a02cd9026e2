"""One version of a model in memory: its signatures, checked inputs, and warm-up."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.errors import DataError
from vsemb.export.savedmodel import MOST_RECORDS, WARMUP_FILE
from vsemb.export.servable import read_saved_model
from vsemb.serving.status import Code, RequestError, invalid

Arrays = dict[str, np.ndarray]

DEFAULT_SIGNATURE = "serving_default"
WARMUP = Path("assets.extra") / WARMUP_FILE

# A proto may state a large shape and one value for all of it. More elements than this, and than it has bytes,
# are refused: what a request costs is to be limited by its size.
_ELEMENTS = 2**20

# Errors of TensorFlow that the values of a request cause.
_CAUSED_BY_INPUT = (
    tf.errors.InvalidArgumentError,
    tf.errors.OutOfRangeError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


@dataclass(frozen=True)
class Signature:
    """What one signature takes and gives.

    Attributes:
        name: its name, e.g. `serving_default`.
        inputs: name -> type and shape.
        outputs: name -> type and shape.
        defaults: values of inputs that a request may leave out.
    """

    name: str
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    defaults: Mapping[str, np.ndarray]

    @functools.cached_property
    def mergeable(self) -> bool:
        """Whether requests may be put together into one batch, with the results that each has alone.

        Every input and output has the batch as its 0th dimension, and an output's rows have a known
        shape: where they do not, a row's shape can depend on its neighbours.
        """
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        batched = all(shape.rank and shape[0] is None for shape in shapes)
        return batched and all(spec.shape[1:].is_fully_defined() for spec in self.outputs.values())

    def check(self, inputs: Arrays) -> Arrays:
        """Checks the inputs of a request and adds the defaults.

        Args:
            inputs: name -> array; strings as arrays of `bytes` objects.

        Raises:
            RequestError: INVALID_ARGUMENT for missing or additional inputs, another type or shape.
        """
        required = self.inputs.keys() - self.defaults.keys()
        extra, missing = inputs.keys() - self.inputs.keys(), required - inputs.keys()
        if extra or missing:
            raise invalid(
                f"input size does not match signature: {len(inputs)}!={len(self.inputs)} "
                f"len({_names(inputs)}) != len({_names(self.inputs)}). "
                f"Sent extra: {_names(extra)}. Missing but required: {_names(missing)}."
            )
        for name, array in inputs.items():
            spec = self.inputs[name]
            dtype = tf.as_dtype(array.dtype) if array.dtype != object else tf.string
            if dtype != spec.dtype:
                raise invalid(f"Expects input {name} to be {spec.dtype.name} but {dtype.name} is provided")
            if not spec.shape.is_compatible_with(array.shape):
                sizes = "?" if spec.shape.rank is None else ", ".join("?" if n is None else str(n) for n in spec.shape)
                raise invalid(f"Input {name} has shape {list(array.shape)}; expected: {spec.dtype.name} [{sizes}].")
        if self.mergeable and len({array.shape[0] for array in inputs.values()}) > 1:
            raise invalid("Batching Run() input tensors must have equal 0th-dimension size")
        return {**{name: self.defaults[name] for name in self.inputs.keys() - inputs.keys()}, **inputs}


def _names(names: Any) -> str:
    return "{" + ",".join(sorted(names)) + "}"


class LoadedModel:
    """A SavedModel in memory. Its methods may be called from several threads.

    Args:
        path: the directory of one version, e.g. `savedmodels/flickr8k/1`.
        name: the model's name; None for that of the directory above.

    Raises:
        DataError: if it cannot be loaded, has no signature, or fails on its own warm-up requests.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = Path(path)
        self.name = self.path.parent.name if name is None else name
        try:
            # Kept, since the signatures hold their variables weakly.
            self._loaded = tf.saved_model.load(os.fspath(path), tags=["serve"])
            self._functions = dict(self._loaded.signatures)
            graphs = read_saved_model(self.path).meta_graphs
            served = next(graph for graph in graphs if list(graph.meta_info_def.tags) == ["serve"])
            self.signature_defs: dict[str, Any] = dict(served.signature_def)
        except Exception as error:
            # Any exception of the loader means an invalid SavedModel.
            raise DataError(f"Cannot load {path} as a SavedModel: {_first_line(error)}") from error
        self.signatures = {
            name: _signature(name, self.signature_defs[name]) for name in self._functions if name in self.signature_defs
        }
        if not self.signatures:
            raise DataError(f"{path} has no signature that could be served.")

    def signature(self, name: str) -> Signature:
        """Returns a signature by name; the empty name is the default one.

        Raises:
            RequestError: FAILED_PRECONDITION if there is none, as TensorFlow Serving answers.
        """
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise RequestError(
                Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found. There are: {known}.'
            )
        return self.signatures[name]

    def run(self, signature: str, inputs: Arrays) -> Arrays:
        """Computes a signature's outputs.

        Args:
            signature: the signature's name.
            inputs: checked inputs, see `Signature.check`.

        Raises:
            RequestError: INVALID_ARGUMENT where the model refuses the values, INTERNAL where it fails.
        """
        specs = self.signatures[signature].inputs
        try:
            given = {name: tf.constant(array, specs[name].dtype) for name, array in inputs.items()}
            outputs = self._functions[signature](**given)
        except _CAUSED_BY_INPUT as error:
            raise invalid(_first_line(error)) from error
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise RequestError(Code.INTERNAL, _first_line(error)) from error
        return {name: _array(tensor) for name, tensor in outputs.items()}

    def warm_up(self) -> int:
        """Replays the version's warm-up requests and returns how many there were.

        Raises:
            DataError: if one is broken or fails: a version that fails on its own examples is not served.
        """
        from tensorflow_serving.apis import prediction_log_pb2

        path = self.path / WARMUP
        if not path.is_file():
            return 0
        count = 0
        try:
            for record in tf.data.TFRecordDataset(os.fspath(path)).take(MOST_RECORDS):
                log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
                if log.WhichOneof("log_type") != "predict_log":
                    continue
                request = log.predict_log.request
                signature = self.signature(request.model_spec.signature_name)
                self.run(signature.name, signature.check(from_protos(request.inputs)))
                count += 1
        except Exception as error:
            raise DataError(f"Warm-up request {count + 1} of {path} fails: {_first_line(error)}") from error
        return count


def _array(tensor: tf.Tensor) -> np.ndarray:
    # A scalar's value is no array.
    return np.asarray(tensor.numpy(), dtype=object if tensor.dtype == tf.string else None)


def _signature(name: str, definition: Any) -> Signature:
    inputs, outputs = (
        {key: tf.TensorSpec(info.tensor_shape, info.dtype) for key, info in sorted(tensors.items())}
        for tensors in (definition.inputs, definition.outputs)
    )
    return Signature(name, inputs, outputs, {key: tf.make_ndarray(value) for key, value in definition.defaults.items()})


def from_protos(protos: Mapping[str, Any]) -> Arrays:
    """Converts the inputs of a PredictRequest.

    Returns:
        name -> array; strings as arrays of `bytes` objects.

    Raises:
        RequestError: INVALID_ARGUMENT for a proto that is no tensor.
    """
    return {name: _from_proto(name, proto) for name, proto in protos.items()}


def _from_proto(name: str, proto: Any) -> np.ndarray:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f"Input {name} has no complete shape: {sizes}.")
    if math.prod(sizes) > max(_ELEMENTS, proto.ByteSize()):
        raise invalid(f"Input {name} has shape {sizes}: more than {_ELEMENTS} elements and than its bytes.")
    try:
        array = tf.make_ndarray(proto)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # The last two for a type without arrays, and a value that its type cannot hold.
        raise invalid(f"Input {name} is not a tensor: {error}") from error
    if array.shape != tuple(sizes):
        raise invalid(f"Input {name} has {array.size} values; its shape is {sizes}.")
    return array


def _first_line(error: BaseException) -> str:
    """Returns the one line of an error that says what is wrong."""
    text = str(getattr(error, "message", None) or error).strip()
    if text.startswith("Graph execution error"):
        # Where in the graph comes first and may hold paths of whoever trained the model; then the reason,
        # then the node's name.
        text = text.split("\n\t [[")[0].splitlines()[-1]
    return text.splitlines()[0] if text else type(error).__name__
