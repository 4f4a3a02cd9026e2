"""Models in memory: a version's signatures, checked inputs and warm-up, and the change from one version to the next.

A new version is loaded beside the old one and takes its place when it has answered its warm-up requests; requests that
the old one has begun are finished before it is unloaded. A version that cannot be loaded is reported and leaves the old
one where it is.
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

from vsemb.errors import DataError
from vsemb.exporting.savedmodel import MOST_RECORDS, WARMUP_FILE
from vsemb.exporting.servable import read_saved_model
from vsemb.exporting.versions import existing_versions
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


LOG = logging.getLogger("vsemb.serving")

# "latest", "all" or the numbers themselves.
Policy = str | Sequence[int]


@dataclass
class Version:
    """One version's state.

    Attributes:
        number: the version.
        state: where it is in its life, a state of ModelVersionStatus.
        error: why it could not be loaded; empty otherwise.
        model: what is served; None before and after.
        users: requests that hold it.
        seen: the directory's contents at the last attempt to load it.
    """

    number: int
    state: int = State.START
    error: str = ""
    model: LoadedModel | None = None
    users: int = 0
    seen: object = None


@dataclass(eq=False)
class ModelVersions:
    """The versions of one model. Everything but loading happens on the event loop.

    Args:
        name: the model's name in requests.
        base: its directory, with a directory for each version.
        policy: `latest`, `all`, or the numbers of the versions to serve.
        labels: label -> version; labelled versions are served whatever the policy.

    Raises:
        DataError: if `base` is no directory or holds no version.
    """

    name: str
    base: Path
    policy: Policy = "latest"
    labels: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._warned: set[str] = set()
        self.versions: dict[int, Version] = {}
        if not self.base.is_dir():
            raise DataError(f"There is no model directory {self.base}. Write one with `vsemb export RUN {self.base}`.")
        if not existing_versions(self.base):
            if (self.base / "saved_model.pb").is_file():
                raise DataError(f"{self.base} is one version; name the model's directory, {self.base.parent}.")
            raise DataError(
                f"{self.base} holds no version, a directory with an integer name. Write one with: "
                f"vsemb export RUN {self.base}"
            )

    @property
    def available(self) -> list[int]:
        """The numbers of the versions that answer requests, ascending."""
        return sorted(number for number, version in self.versions.items() if version.state == State.AVAILABLE)

    def labelled(self, label: str) -> int:
        """Returns the number of a labelled version.

        Raises:
            RequestError: INVALID_ARGUMENT for an unknown label.
        """
        if label not in self.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return self.labels[label]

    @contextlib.contextmanager
    def lease(self, version: int | None = None, label: str | None = None) -> Iterator[tuple[int, LoadedModel]]:
        """Holds the version that answers a request, so that it is not unloaded meanwhile.

        Args:
            version: its number; None for the newest.
            label: its label, instead of the number.

        Yields:
            Its number and its model.

        Raises:
            RequestError: NOT_FOUND if it is not served, INVALID_ARGUMENT for an unknown label.
        """
        if label:
            version = self.labelled(label)
        available = self.available
        number = max(available, default=None) if version is None else version
        if number not in available:
            raise not_served(self.name, version)
        found = self.versions[number]
        assert found.model is not None
        found.users += 1
        try:
            yield number, found.model
        finally:
            found.users -= 1
            self._drop_if_idle(found)

    async def refresh(self) -> None:
        """Looks at the directory once and loads and unloads what that asks for."""
        present = await asyncio.to_thread(self._present)
        if present is None:
            self._warn_once(f"cannot read {self.base}; what is loaded stays.")
            return
        for label, number in self.labels.items():
            if number not in present:
                self._warn_once(f"there is no version {number} yet for the label {label}.")
        wanted = await self._load_wanted(present)
        self._unload(set(self.available) - wanted)

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            LOG.warning("%s: %s", self.name, line)

    def close(self) -> None:
        """Takes all versions out of service."""
        self._unload(self.available)

    def _present(self) -> list[int] | None:
        try:
            if not self.base.is_dir():
                return None
            return [
                number
                for number in existing_versions(self.base)
                # The API's numbers are int64; files, and numbers with zeros before them, are no versions.
                if number < 2**63 and (self.base / str(number)).is_dir()
            ]
        except OSError:
            return None

    async def _load_wanted(self, present: list[int]) -> set[int]:
        """Loads what the policy asks for and returns the numbers that are to stay."""
        kept = {number for number in self.labels.values() if number in present}
        if self.policy != "latest":
            kept |= set(present) & set(present if self.policy == "all" else self.policy)
        for number in sorted(kept):
            await self._load(number)
        if self.policy == "latest":
            for number in reversed(present):
                # A broken version is no reason to stop serving the one before it.
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
            # Nothing changed since it failed.
            return False
        version.seen, version.error, version.state = seen, "", State.LOADING
        try:
            model = await asyncio.to_thread(LoadedModel, path, self.name)
            await asyncio.to_thread(model.warm_up)
        except DataError as error:
            version.state, version.error = State.END, str(error)
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
            LOG.info("%s: version %d is unloaded.", self.name, version.number)


def _contents(path: Path) -> object:
    """Returns something that changes while a version's files are being written."""
    found = []
    for directory, _, names in os.walk(path):
        for name in sorted(names):
            with contextlib.suppress(OSError):
                stat = os.stat(os.path.join(directory, name))
                found.append((directory, name, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def not_served(name: str, version: int | None) -> RequestError:
    """Returns the error of a request to a model, or to one version of it, that is not served."""
    which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return RequestError(Code.NOT_FOUND, f"Servable not found for request: {which}")
