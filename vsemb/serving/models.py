"""Loaded models: signatures, input checks, warm-up, and the switch between versions.

A new version is loaded beside the old one and replaces it after its warm-up requests. Requests in flight finish before
the old version is unloaded. A version that cannot be loaded is reported, and the old one stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus as State

from vsemb.allocation import return_freed_memory
from vsemb.errors import DataError
from vsemb.exporting.contract import version_contract_path
from vsemb.exporting.neighbours import TEXTS, check_loaded
from vsemb.exporting.savedmodel import MOST_RECORDS, WARMUP_FILE
from vsemb.exporting.servable import read_saved_model
from vsemb.exporting.versions import existing_versions
from vsemb.files import require_contained
from vsemb.serving.status import Code, RequestError, invalid

Arrays = dict[str, np.ndarray]

DEFAULT_SIGNATURE = "serving_default"
WARMUP = Path("assets.extra") / WARMUP_FILE

# A proto may have a large shape with a single value for all elements. To bound the cost of a request, the number of
# elements is limited to this, or to the proto's size in bytes if that is larger.
_ELEMENTS = 2**20

# Errors of TensorFlow that are caused by the values of a request.
_CAUSED_BY_INPUT = (
    tf.errors.InvalidArgumentError,
    tf.errors.OutOfRangeError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


@dataclass(frozen=True)
class LoadedSignature:
    """Inputs and outputs of one signature.

    Attributes:
        name: name of the signature, e.g. `serving_default`.
        inputs: name -> type and shape.
        outputs: name -> type and shape.
        defaults: input -> value for requests without it.
    """

    name: str
    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    defaults: Mapping[str, np.ndarray]

    @functools.cached_property
    def required(self) -> list[str]:
        """The inputs without a default, sorted."""
        return sorted(self.inputs.keys() - self.defaults.keys())

    @functools.cached_property
    def mergeable(self) -> bool:
        """Whether requests can be merged into one batch without changing their results.

        Requires the batch as 0th dimension of all inputs and outputs, and fixed shapes of output rows: an open shape
        may depend on other rows of the batch.
        """
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        batched = all(shape.rank and shape[0] is None for shape in shapes)
        return batched and all(spec.shape[1:].is_fully_defined() for spec in self.outputs.values())

    @functools.cached_property
    def row_bytes(self) -> int | None:
        """Bytes of one row of all outputs; None if they depend on the request. A string counts as a pointer."""
        if not self.mergeable:
            return None
        specs = self.outputs.values()
        return sum(math.prod(spec.shape[1:]) * spec.dtype.size for spec in specs)

    @functools.cached_property
    def row_json(self) -> tuple[int, int] | None:
        """Maximum values, and maximum lists and objects, of a row in JSON; None if its size is open."""
        values = lists = 1
        for spec in self.inputs.values():
            if spec.shape.rank is None or not spec.shape[1:].is_fully_defined():
                return None
            # Values at each depth: the row's own, then those of its nested lists.
            levels = [math.prod(spec.shape[1 : 1 + depth]) for depth in range(max(1, spec.shape.rank))]
            encoded = levels[-1] if spec.dtype == tf.string else 0
            values += sum(levels) + encoded
            lists += sum(levels[:-1]) + encoded
        return values, lists

    def check(self, inputs: Arrays) -> Arrays:
        """Check the inputs of a request and add defaults.

        Args:
            inputs: name -> array; strings as arrays of `bytes` objects.

        Raises:
            RequestError: INVALID_ARGUMENT for missing or additional inputs, or another type or shape.
        """
        extra, missing = inputs.keys() - self.inputs.keys(), set(self.required) - inputs.keys()
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
    """A SavedModel in memory; thread-safe.

    Args:
        path: directory of one version, e.g. `savedmodels/flickr8k/1`.
        name: name of the model; None for the name of the parent directory.

    Raises:
        DataError: if the SavedModel cannot be loaded or has no signature.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = Path(path)
        self.name = self.path.parent.name if name is None else name
        try:
            require_contained(self.path, "model", links=True)
            # Keep a reference to the module, because signatures hold their variables weakly.
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
            raise DataError(f"{path} must have a signature. Export it again with: vsemb export RUN savedmodels/NAME")
        if "encode_text" in self._functions and not version_contract_path(self.path).is_file():
            # Batches mix the rows of clients. An export with a contract was compared row by row.
            check_loaded(os.fspath(path), "encode_text", self._functions["encode_text"], {"text": TEXTS})

    def signature(self, name: str) -> LoadedSignature:
        """Return a signature by name; "" is the default signature.

        Raises:
            RequestError: FAILED_PRECONDITION for an unknown name, as in TensorFlow Serving.
        """
        name = name or DEFAULT_SIGNATURE
        if name not in self.signatures:
            known = ", ".join(sorted(self.signatures))
            raise RequestError(
                Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found. There are: {known}.'
            )
        return self.signatures[name]

    def run(self, signature: str, inputs: Arrays) -> Arrays:
        """Compute a signature's outputs.

        Args:
            signature: name of the signature.
            inputs: checked inputs, see `LoadedSignature.check`.

        Raises:
            RequestError: INVALID_ARGUMENT if the model refuses the values, INTERNAL if it fails.
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
        """Replay the version's warm-up requests and return their number.

        Raises:
            DataError: if a request is malformed or fails.
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
    # `numpy` of a scalar is not an array.
    return np.asarray(tensor.numpy(), dtype=object if tensor.dtype == tf.string else None)


def _signature(name: str, definition: Any) -> LoadedSignature:
    inputs, outputs = (
        {key: tf.TensorSpec(info.tensor_shape, info.dtype) for key, info in sorted(tensors.items())}
        for tensors in (definition.inputs, definition.outputs)
    )
    defaults = {key: tf.make_ndarray(value) for key, value in definition.defaults.items()}
    return LoadedSignature(name, inputs, outputs, defaults)


def from_protos(protos: Mapping[str, Any]) -> Arrays:
    """Convert the inputs of a PredictRequest.

    Returns:
        name -> array; strings as arrays of `bytes` objects.

    Raises:
        RequestError: INVALID_ARGUMENT for a malformed tensor.
    """
    return {name: _from_proto(name, proto) for name, proto in protos.items()}


def _from_proto(name: str, proto: Any) -> np.ndarray:
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f"The shape of input {name} must be complete; got {sizes}.")
    if math.prod(sizes) > (most := max(_ELEMENTS, proto.ByteSize())):
        raise invalid(f"Input {name} must have at most {most} elements; got shape {sizes}.")
    try:
        array = tf.make_ndarray(proto)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        # The last two types mean a dtype without arrays, and a value out of range.
        raise invalid(f"Input {name} must be a tensor: {error}") from error
    if array.shape != tuple(sizes):
        raise invalid(f"Input {name} must have as many values as its shape {sizes}; got {array.size}.")
    return array


def _first_line(error: BaseException) -> str:
    """Return the line of an error that states the cause."""
    text = str(getattr(error, "message", None) or error).strip()
    if text.startswith("Graph execution error"):
        # The message begins with a location in the graph, with paths of the training machine. The cause and the name of
        # the node follow.
        text = text.split("\n\t [[")[0].splitlines()[-1]
    return text.partition("\n")[0] if text else type(error).__name__


LOG = logging.getLogger("vsemb.serving")

# "latest", "all", or version numbers.
Policy = str | Sequence[int]


@dataclass
class Version:
    """State of one version.

    Attributes:
        number: version number.
        state: a state of ModelVersionStatus.
        error: reason why it could not be loaded; "" otherwise.
        model: the loaded model; None before and after serving.
        users: number of requests that use it.
        seen: content of the directory at the last attempt to load it.
    """

    number: int
    state: int = State.START
    error: str = ""
    model: LoadedModel | None = None
    users: int = 0
    seen: object = None


@dataclass(eq=False)
class ModelVersions:
    """Versions of one model; only loading runs outside the event loop.

    Args:
        name: name of the model in requests.
        base: directory with a subdirectory per version.
        policy: `latest`, `all`, or version numbers.
        labels: label -> version; labelled versions are always served.

    Raises:
        DataError: if `base` is not a directory or holds no version.
    """

    name: str
    base: Path
    policy: Policy = "latest"
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._warned: set[str] = set()
        self.versions: dict[int, Version] = {}
        self._unloaded = False
        if not self.base.is_dir():
            raise DataError(f"No model directory at {self.base}. Write one with: vsemb export RUN {self.base}")
        if not existing_versions(self.base):
            if (self.base / "saved_model.pb").is_file():
                raise DataError(f"{self.base} is a single version. Pass the model's directory, {self.base.parent}.")
            raise DataError(
                f"{self.base} must hold a version, a directory with an integer name. Write one with: "
                f"vsemb export RUN {self.base}"
            )

    @property
    def available(self) -> list[int]:
        """Numbers of the loaded versions, ascending."""
        return sorted(number for number, version in self.versions.items() if version.state == State.AVAILABLE)

    def labelled(self, label: str) -> int:
        """Return the number of a labelled version.

        Raises:
            RequestError: INVALID_ARGUMENT for an unknown label.
        """
        if label not in self.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return self.labels[label]

    @contextlib.contextmanager
    def lease(self, version: int | None = None, label: str | None = None) -> Iterator[tuple[int, LoadedModel]]:
        """Keep the version of a request loaded inside this context.

        Args:
            version: version number; None for the newest.
            label: label in place of the number.

        Yields:
            The version's number and its model.

        Raises:
            RequestError: NOT_FOUND for a version that is not served, INVALID_ARGUMENT for an unknown label.
        """
        if label:
            version = self.labelled(label)
        available = self.available
        number = max(available, default=None) if version is None else version
        if number not in available:
            raise not_served(self.name, version)
        held = self.versions[number]
        assert held.model is not None
        held.users += 1
        try:
            yield number, held.model
        finally:
            held.users -= 1
            self._drop_if_idle(held)

    async def refresh(self) -> None:
        """Read the directory once and load and unload versions."""
        present = await asyncio.to_thread(self._present)
        if present is None:
            self._warn_once(f"cannot read {self.base}; loaded versions stay.")
            return
        for label, number in self.labels.items():
            if number not in present:
                self._warn_once(f"the version {number} of label {label} does not exist yet.")
        wanted = await self._load_wanted(present)
        self._unload(set(self.available) - wanted)
        if self._unloaded:
            self._unloaded = False
            await asyncio.to_thread(return_freed_memory)

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            LOG.warning("%s: %s", self.name, line)

    def close(self) -> None:
        """Take all versions out of service."""
        self._unload(self.available)

    def _present(self) -> list[int] | None:
        try:
            if not self.base.is_dir():
                return None
            return [
                number
                for number in existing_versions(self.base)
                # A version is a directory whose name is an int64 without leading zeros.
                if (self.base / str(number)).is_dir()
            ]
        except OSError:
            return None

    async def _load_wanted(self, present: list[int]) -> set[int]:
        """Load the versions of the policy and return the numbers to keep."""
        kept = {number for number in self.labels.values() if number in present}
        if self.policy != "latest":
            kept |= set(present) & set(present if self.policy == "all" else self.policy)
        for number in sorted(kept):
            await self._load(number)
        if self.policy == "latest":
            for number in reversed(present):
                # If a version is broken, the previous one is served.
                if await self._load(number):
                    return kept | {number}
        return kept

    async def _load(self, number: int) -> bool:
        version = self.versions.setdefault(number, Version(number))
        if version.state == State.AVAILABLE:
            return True
        path = self.base / str(number)
        seen = await asyncio.to_thread(_contents, path)
        if version.error and version.seen == seen:
            # Do not retry: the files have not changed since the failure.
            return False
        version.seen, version.error, version.state = seen, "", State.LOADING
        LOG.info("%s: loading version %d", self.name, number)
        try:
            model = await asyncio.to_thread(LoadedModel, path, self.name)
            await asyncio.to_thread(model.warm_up)
        except DataError as error:
            version.state, version.error = State.END, str(error)
            self._unloaded = True
            LOG.error("%s: version %d is not served. %s", self.name, number, error)
            return False
        version.model, version.state = model, State.AVAILABLE
        LOG.info("%s: version %d is served.", self.name, number)
        return True

    def _unload(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self.versions[number].state = State.UNLOADING
            self._drop_if_idle(self.versions[number])

    def _drop_if_idle(self, version: Version) -> None:
        if version.state == State.UNLOADING and not version.users:
            version.model, version.state = None, State.END
            self._unloaded = True
            LOG.info("%s: version %d is unloaded.", self.name, version.number)


def _contents(path: Path) -> object:
    """Return a value that changes while a version's files are being written."""
    files = []
    for directory, _, names in os.walk(path):
        for name in sorted(names):
            with contextlib.suppress(OSError):
                stat = os.stat(os.path.join(directory, name))
                files.append((directory, name, stat.st_size, stat.st_mtime_ns))
    return sorted(files)


def not_served(name: str, version: int | None) -> RequestError:
    """Return the error for a model or version that is not served."""
    which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return RequestError(Code.NOT_FOUND, f"Servable not found for request: {which}")
