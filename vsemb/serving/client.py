"""A client for TensorFlow Serving and for `vsemb serve`: the same calls over REST and gRPC.

Over REST it needs NumPy and urllib3 alone; over gRPC the extra `serving`. In this order: the two ways to a server, and
the client that takes either.
"""

from __future__ import annotations

import abc
import base64
import functools
import itertools
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
import urllib3

from vsemb import registry
from vsemb.errors import DataError, VsembError, invalid_argument, needs_extra, one_line, unknown_name
from vsemb.parts import Count, Range, at_least, between, require, require_fields
from vsemb.serving.status import Code

Arrays = dict[str, np.ndarray]
Result = TypeVar("Result")

_PORTS = {"http": 80, "https": 443, "grpc": 8500, "grpcs": 443}

# TensorFlow's names of types, as metadata has them, and NumPy's types; strings are `bytes` objects.
_DTYPES = {
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64")},
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    "DT_HALF": np.dtype(np.float16),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_STRING": np.dtype(object),
}

# Seconds before the first and the longest pause between two attempts.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class ServingError(VsembError):
    """A call to a server failed.

    Args:
        code: gRPC's name of the status, whichever way the call went, e.g. `"NOT_FOUND"`; `"UNAVAILABLE"` also
            where no server answers, `"DEADLINE_EXCEEDED"` also where time ran out here.
        message: what happened, in one line.
        detail: what the server said, "" where it said nothing.
        http_status: the status of the HTTP answer; None over gRPC and without an answer.

    Example:

    >>> error = ServingError("NOT_FOUND", "no such model", http_status=404)
    >>> error.code, error.http_status, str(error)
    ('NOT_FOUND', 404, 'no such model')
    """

    def __init__(self, code: str, message: str, detail: str = "", http_status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail
        self.http_status = http_status


@dataclass(frozen=True)
class TensorInfo:
    """Type and shape of one input or output.

    Attributes:
        dtype: NumPy's type; `object` for strings, which are `bytes`.
        shape: the sizes, None where any size is allowed; None where the rank is unknown.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class SignatureInfo:
    """What one signature takes and gives, by name."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]


@dataclass(frozen=True)
class VersionStatus:
    """One version of a model on a server.

    Attributes:
        version: its number.
        state: `START`, `LOADING`, `AVAILABLE`, `UNLOADING` or `END`.
        error_code: `OK`, or why it cannot be served.
        error_message: the same in words.
    """

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


@dataclass(eq=False)
class Transport(abc.ABC):
    """A way to a model on a server. Each call is one attempt; methods may be called from several threads.

    Args:
        where: `SCHEME://HOST:PORT`, IPv6 in brackets; for REST also the path before `/v1`.
        model: the model's name.
        version: one version; None for the newest, or the label's.
        label: a label; None for none.
    """

    where: str
    model: str
    version: int | None
    label: str | None

    #: The API's name, and the HTTP status of its answers.
    api: ClassVar[str]
    success: ClassVar[int | None] = None

    @abc.abstractmethod
    def __post_init__(self) -> None:
        """Prepares the connections; the first call makes them."""

    @abc.abstractmethod
    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        """Runs a signature; `outputs` tells the types that the answer is to have."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the connections."""

    @abc.abstractmethod
    def _asked(self, metadata: bool, timeout: float) -> dict[str, Any]:
        """Returns the model's GetModelMetadataResponse or its GetModelStatusResponse, as JSON."""

    def signatures(self, timeout: float) -> dict[str, SignatureInfo]:
        """Returns the model's signatures."""
        answer = self._asked(True, timeout)
        try:
            definitions = answer["metadata"]["signature_def"]["signature_def"]
            return {
                name: SignatureInfo(_infos(value.get("inputs")), _infos(value.get("outputs")))
                for name, value in sorted(definitions.items())
                # The operations that initialise a model are listed too and are no signature to call.
                if not name.startswith("__")
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._odd(f"the metadata cannot be read, {error!r}") from error

    def status(self, timeout: float) -> list[VersionStatus]:
        """Returns the states of the model's versions."""
        answer = self._asked(False, timeout)
        try:
            return [
                VersionStatus(int(entry["version"]), entry["state"], **entry.get("status", {}))
                for entry in answer["model_version_status"]
            ]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._odd(f"the status cannot be read, {error!r}") from error

    def _unreachable(self, reason: object) -> ServingError:
        return ServingError(
            "UNAVAILABLE",
            f"No server answers at {self.where} ({one_line(reason, 200)}). Check the address, or start one with: "
            "vsemb serve savedmodels/NAME",
        )

    def _too_slow(self, seconds: float) -> ServingError:
        return ServingError(
            "DEADLINE_EXCEEDED",
            f"The server at {self.where} did not answer within {seconds:.3g} seconds. Give the client a longer "
            "timeout, or a smaller batch_size.",
        )

    def _refused(self, code: str, detail: str, http_status: int | None = None) -> ServingError:
        detail = one_line(detail)
        shown = code if http_status is None else f"HTTP {http_status} {code}"
        return ServingError(code, f"The server at {self.where} answered {shown}: {detail}", detail, http_status)

    def _odd(self, what: str) -> ServingError:
        return self._refused("UNKNOWN", f"that is not TensorFlow Serving's {self.api} API: {what}", self.success)


def _infos(tensors: Mapping[str, Any] | None) -> dict[str, TensorInfo]:
    infos = {}
    for name, tensor in sorted((tensors or {}).items()):
        shape = tensor.get("tensor_shape") or {}
        sizes = [int(dim["size"]) for dim in shape.get("dim") or []]
        known = tuple(None if size < 0 else size for size in sizes)
        infos[name] = TensorInfo(_DTYPES[tensor["dtype"]], None if shape.get("unknown_rank") else known)
    return infos


# HTTP statuses and the codes of gRPC that they stand for: those of TensorFlow Serving, and of proxies before it.
_CODES = {code.value: code.name for code in Code} | {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
}

# Which kinds of numbers JSON may have for each: whole floats may come without a point, and none at all are
# floats to NumPy.
_KINDS = {"f": "fiu", "i": "iuf", "u": "iuf", "b": "bf"}


class RestTransport(Transport):
    """Speaks HTTP over connections that stay open, at most 16; see `Transport`."""

    api, success = "REST", 200

    def __post_init__(self) -> None:
        self._base = f"{self.where}/v1/models/{quote(self.model, safe='')}"
        if self.label is not None:
            self._base += f"/labels/{quote(self.label, safe='')}"
        elif self.version is not None:
            self._base += f"/versions/{self.version}"
        self._pool = urllib3.PoolManager(maxsize=16, retries=False)

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        columns = {name: _json(value) for name, value in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        found = self._call("POST", f"{self._base}:predict", timeout, body).get("outputs")
        if len(outputs) == 1:
            # A single output comes without its name.
            found = {next(iter(outputs)): found}
        if not isinstance(found, dict) or found.keys() != outputs.keys():
            raise self._odd("outputs are missing")
        try:
            return {name: _array(found[name], info) for name, info in outputs.items()}
        except (ValueError, TypeError, OverflowError) as error:
            raise self._odd(f"an output cannot be read, {error}") from error

    def close(self) -> None:
        self._pool.clear()

    def _asked(self, metadata: bool, timeout: float) -> dict[str, Any]:
        return self._call("GET", f"{self._base}/metadata" if metadata else self._base, timeout)

    def _call(self, method: str, url: str, timeout: float, body: bytes | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        limits, end = urllib3.Timeout(total=timeout), time.monotonic() + timeout
        content = bytearray()
        try:
            response = self._pool.request(
                method, url, body=body, headers=headers, timeout=limits, redirect=False, preload_content=False
            )
            # The limit is urllib3's for each part alone; an answer may come in many.
            while part := response.read1(2**16):
                content += part
                if time.monotonic() > end:
                    response.close()
                    raise self._too_slow(timeout)
            response.release_conn()
        # Of its parents that a lost connection has too, hence first.
        except urllib3.exceptions.NewConnectionError as error:
            raise self._unreachable(error.__cause__ or error) from error
        except urllib3.exceptions.TimeoutError as error:
            raise self._too_slow(timeout) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        try:
            answer = json.loads(bytes(content))
        except (ValueError, RecursionError):
            answer = None
        if response.status != 200:
            said = answer.get("error") if isinstance(answer, dict) else None
            detail = said or content[:200].decode(errors="replace") or response.reason or "no reason given"
            raise self._refused(_CODES.get(response.status, "UNKNOWN"), str(detail), response.status)
        if not isinstance(answer, dict):
            raise self._odd("it is no JSON object")
        return answer


def _json(array: np.ndarray) -> Any:
    """Returns an array as JSON has it; strings always in base64, so that any bytes pass."""
    if array.dtype == object:
        array = np.vectorize(lambda value: {"b64": base64.b64encode(value).decode("ascii")}, otypes=[object])(array)
    return array.tolist()


def _array(value: Any, info: TensorInfo) -> np.ndarray:
    """Returns the array that JSON has, in the type and with the rank of the metadata."""
    if info.dtype == object:
        array = np.vectorize(_bytes, otypes=[object])(np.asarray(value, object))
    else:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in _KINDS[info.dtype.kind]:
            raise ValueError(f"{array.dtype} instead of {info.dtype}")
        array = array.astype(info.dtype)
    if info.shape is not None and array.ndim < len(info.shape) and array.size == 0:
        # No rows tell nothing of what a row has.
        missing = info.shape[array.ndim :]
        array = array.reshape(*array.shape, *(0 if size is None else size for size in missing))
    return array


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"])
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a string")
    return value.encode("utf-8", errors="surrogateescape")


#: Bytes of the largest message sent or received; gRPC's own limit is 4 MB.
LARGEST_MESSAGE = 256 * 2**20

# What gRPC itself says of a server that it cannot reach.
_OF_THE_CONNECTION = ("connect", "Socket closed", "resolv")

_OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # Attempts are counted by the client, not also underneath it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A proxy that the environment names is for the web.
    ("grpc.enable_http_proxy", 0),
]


class GrpcTransport(Transport):
    """Speaks gRPC over one connection; see `Transport`.

    TensorFlow is imported, since the API's messages hold TensorFlow's.

    Raises:
        MissingExtraError: if tensorflow-serving-api is not installed.
    """

    api = "gRPC"

    def __post_init__(self) -> None:
        with needs_extra("tensorflow-serving-api", "serving"):
            import grpc
            from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
        scheme, target = self.where.split("://")
        if scheme == "grpcs":
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            request.inputs[name].CopyFrom(tf.make_tensor_proto(array, dtype=dtype, shape=array.shape))
        answer = self._call(self._prediction.Predict, request, timeout)
        if answer.outputs.keys() != outputs.keys():
            raise self._odd("outputs are missing")
        # Arrays of the message's own memory cannot be written to.
        return {name: np.require(tf.make_ndarray(answer.outputs[name]), requirements="W") for name in outputs}

    def close(self) -> None:
        self._channel.close()

    def _asked(self, metadata: bool, timeout: float) -> dict[str, Any]:
        from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

        if metadata:
            request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
            return message_to_json(self._call(self._prediction.GetModelMetadata, request, timeout))
        request = get_model_status_pb2.GetModelStatusRequest()
        return message_to_json(self._call(self._models.GetModelStatus, request, timeout))

    def _call(self, method: Callable[..., Any], request: Any, timeout: float) -> Any:
        import grpc

        request.model_spec.name = self.model
        if self.label is not None:
            request.model_spec.version_label = self.label
        elif self.version is not None:
            request.model_spec.version.value = self.version
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or "no reason given"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise self._too_slow(timeout) from error
            # A server that is reached says so itself; the words are those of the connection.
            if code is grpc.StatusCode.UNAVAILABLE and any(word in details for word in _OF_THE_CONNECTION):
                raise self._unreachable(details) from error
            raise self._refused(code.name, details) from error


def message_to_json(message: Any) -> dict[str, Any]:
    """Returns a protobuf message as JSON, as TensorFlow Serving's REST API writes it."""
    from google.protobuf import json_format

    return json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )


def connect(url: str, model: str, version: int | None, label: str | None) -> Transport:
    """Returns the way to a model; the connection itself is made by the first call.

    Raises:
        InvalidArgumentError: for another URL, or a name that no model can have.
        MissingExtraError: for gRPC without the extra `serving`.

    Example:

    >>> connect("http://localhost:8501/behind/", "pets", None, "stable").where
    'http://localhost:8501/behind'
    """
    allowed = "http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid_argument("url", url, allowed) from error
    if parts.scheme not in _PORTS or not host or parts.query or parts.fragment or parts.username is not None:
        raise invalid_argument("url", url, allowed)
    path = parts.path.rstrip("/")
    rest = parts.scheme.startswith("http")
    if path and not rest:
        raise invalid_argument("url", url, allowed, "gRPC has no paths.")
    if re.search(r"/v1(/|$)", path):
        raise invalid_argument("url", url, allowed, "Give the address alone, and the model by `model`.")
    for argument, name in (("model", model), *((("label", label),) if label is not None else ())):
        if not isinstance(name, str) or not re.fullmatch(r"[^/:\s]+", name):
            raise invalid_argument(argument, name, f"a {argument}'s name, without / and :")
    host = f"[{host}]" if ":" in host else host
    where = f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}{path}"
    return (RestTransport if rest else GrpcTransport)(where, model, version, label)


def attempted(attempt: Callable[[float], Result], timeout: float, retries: int) -> Result:
    """Calls until an attempt succeeds, fails for good, or time or attempts run out.

    Only `UNAVAILABLE` is tried again: predictions change nothing, so a connection that broke may have
    carried one or not.

    Args:
        attempt: called with the seconds that are left.
        timeout: seconds for everything, the pauses too.
        retries: attempts after the first.

    Raises:
        ServingError: of the last attempt.

    Example:

    >>> attempted(lambda seconds: "answer", timeout=1.0, retries=2)
    'answer'
    """
    end = time.monotonic() + timeout
    for number in range(retries + 1):
        try:
            return attempt(max(end - time.monotonic(), 1e-3))
        except ServingError as error:
            # Chance keeps many clients from coming back all at once.
            seconds = min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
            if error.code != "UNAVAILABLE" or number == retries or time.monotonic() + seconds >= end:
                raise
        time.sleep(seconds)
    raise AssertionError("unreachable")


Seconds = Annotated[float, Range("a number of seconds > 0", lambda value: 0 < value < math.inf)]
# As far as int64 goes.
Version = Annotated[int, Range("an integer >= 0 and below 2**63", lambda value: 0 <= value < 2**63)]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What texts or images were embedded to.

    Attributes:
        embedding: (n, dim) float32, zero in rows that are not valid. Of a model of sets (n, items, dim): a
            vector for each word or region, zero where there is none.
        valid: (n,) bool, whether there was anything to embed: a word, an image.
    """

    embedding: np.ndarray
    valid: np.ndarray


@dataclass(frozen=True, eq=False)
class Found:
    """What was found for each query, best first.

    Attributes:
        ids: (n, k) int64, -1 in rows that are not valid; fewer than k columns where the model holds fewer.
        scores: (n, k) float32.
        keys: n lists of k names, empty in rows that are not valid.
        valid: (n,) bool.
    """

    ids: np.ndarray
    scores: np.ndarray
    keys: list[list[str]]
    valid: np.ndarray


_Rows = TypeVar("_Rows", Embeddings, Found)


def joined(parts: Sequence[_Rows]) -> _Rows:
    """Returns answers about parts of a list as the answer about the whole of it.

    Args:
        parts: one at least, in order, all of a kind.

    Example:

    >>> one = Embeddings(np.ones((1, 2), np.float32), np.array([True]))
    >>> joined([one, one]).embedding.shape
    (2, 2)
    """
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for item in fields(parts[0]):
        each = [getattr(part, item.name) for part in parts]
        listed = isinstance(each[0], list)
        values[item.name] = list(itertools.chain(*each)) if listed else np.concatenate(each)
    return type(parts[0])(**values)


@dataclass(eq=False, repr=False)
class Client(AbstractContextManager["Client"]):
    """Asks a model on a server. Its methods may be called from several threads.

    Systems add methods for what only their models answer, such as `caption` and `align`: see
    `vsemb.registry.System.client_methods`, and `vsemb/systems/NAME/client.py` for what they take.

    Args:
        url: `http://HOST:PORT` for REST or `grpc://HOST:PORT` for gRPC; `https` and `grpcs` where the
            connection is encrypted.
        model: the model's name.
        version: a version's number; None for the newest.
        label: a version's label, e.g. `stable`; not together with a version.
        timeout: seconds for a request, attempts and pauses together.
        retries: further attempts where the server cannot be reached or is busy. Nothing else is tried again.
        batch_size: rows of a request at most; longer inputs are sent in parts.
        batch_bytes: bytes of text and images in a request at most, unless a single row has more.
        parser: what reads texts for a model that takes something else, such as dependency trees: a name or path,
            opened when it is first needed, or a function. For trees see `vsemb.systems.trees.client.TextParser`.

    Raises:
        InvalidArgumentError: for an argument that is not allowed.
        MissingExtraError: for gRPC without the extra `serving`.

    Example:

        with Client("http://localhost:8501", model="flickr8k") as client:
            print(client.encode_text(["a dog on a beach"]).embedding.shape)
    """

    url: str
    model: str
    _: KW_ONLY
    version: Version | None = None
    label: str | None = None
    timeout: Seconds = 10.0
    retries: Annotated[int, at_least(0)] = 2
    batch_size: Count = 64
    batch_bytes: Count = 16 * 2**20
    parser: str | os.PathLike[str] | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        if self.version is not None and self.label is not None:
            raise invalid_argument("label", self.label, "no label where a version is given", "Leave one out.")
        if not (self.parser is None or isinstance(self.parser, str | os.PathLike) or callable(self.parser)):
            raise invalid_argument("parser", self.parser, "a parser's name, its path, or a function")
        self._readers: dict[str, Any] = {}
        self._transport = connect(self.url, self.model, self.version, self.label)
        self._signatures: dict[str, SignatureInfo] | None = None

    def __getattr__(self, name: str) -> Any:
        # Only for what this class has not.
        methods = {} if name.startswith("_") else registry.entries("client_methods")
        if name not in methods:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return functools.partial(registry.load(methods[name]), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *registry.entries("client_methods")})

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def status(self) -> list[VersionStatus]:
        """Returns the states of the model's versions, or of the one that the client was made for.

        Raises:
            ServingError: `NOT_FOUND` for a model that the server does not know.
        """
        return self._attempted(self._transport.status)

    def signatures(self, refresh: bool = False) -> dict[str, SignatureInfo]:
        """Returns what the model can be asked: signature -> inputs and outputs with types and shapes.

        Args:
            refresh: whether to ask again; the answer is kept otherwise.

        Raises:
            ServingError: if the server does not answer or knows no such model.
        """
        if refresh or self._signatures is None:
            self._signatures = self._attempted(self._transport.signatures)
        return self._signatures

    def predict(self, signature: str = "serving_default", /, **inputs: Any) -> Arrays:
        """Runs any signature.

        Args:
            signature: its name.
            **inputs: an array or a list for each of its inputs; texts as `str` or `bytes`. Inputs with
                equally many rows are sent in parts of `batch_size`.

        Returns:
            Output name -> array in the type that the model states; strings as arrays of `bytes` objects.

        Raises:
            InvalidArgumentError: for a signature or an input that the model does not have, or another type.
            ServingError: if the server refuses or does not answer.

        Example:

            client.predict("encode_text", text=["a dog"])["embedding"]
        """
        info = self.signature(signature)
        for name in inputs.keys() - info.inputs.keys():
            raise unknown_name("input", name, info.inputs)
        if missing := sorted(info.inputs.keys() - inputs.keys()):
            raise invalid_argument("inputs", sorted(inputs), f"all of {', '.join(info.inputs)}", f"Give {missing[0]}.")
        arrays = {name: to_array(name, values, info.inputs[name]) for name, values in inputs.items()}
        rows = {len(array) if array.ndim else None for array in arrays.values()}
        if len(rows) != 1 or (count := rows.pop()) is None:
            return self._run(signature, info, arrays)
        if count == 0:
            return {
                name: np.zeros((0, *(size or 0 for size in (output.shape or ())[1:])), output.dtype)
                for name, output in info.outputs.items()
            }
        parts = [
            self._run(signature, info, {name: array[start:end] for name, array in arrays.items()})
            for start, end in requests_of(list(arrays.values()), self.batch_size, self.batch_bytes)
        ]
        if len(parts) == 1:
            return parts[0]
        try:
            return {name: np.concatenate([part[name] for part in parts]) for name in info.outputs}
        except ValueError as error:
            allowed = f"at least {count}, the rows of the inputs"
            fix = "The shape of a row differs between parts, so that they cannot be put together."
            raise invalid_argument("batch_size", self.batch_size, allowed, fix) from error

    def encode_text(self, texts: Sequence[str | bytes]) -> Embeddings:
        """Embeds texts.

        A model of sets gives a vector for each word, and zeros where no word is.

        Where the model takes something else than texts, such as trees, they are read here first, with the client's
        parser.

        Args:
            texts: n of them, any number.

        Raises:
            InvalidArgumentError: if they have to be parsed and the client has no parser.
            MissingExtraError: if the parser is a pipeline and the extra `parse` is not installed.
            ServingError: as `predict`.
        """
        rows = to_texts(texts)
        if kind := self._text_kind("encode"):
            return getattr(self, f"encode_{kind}")(self._read(kind, rows))
        return self.encode("encode_text", text=rows)

    def encode_image(self, images: Sequence[bytes | str | os.PathLike[str]]) -> Embeddings:
        """Embeds images.

        Args:
            images: n JPEG or PNG images, each the file's content or its path.

        Raises:
            DataError: if a file cannot be read.
            ServingError: as `predict`.
        """
        return self.encode("encode_image", image_bytes=to_images(images))

    def encode(self, signature: str, **inputs: Any) -> Embeddings:
        """Asks a signature that embeds.

        Args:
            signature: its name, such as `encode_text`.
            **inputs: its inputs.

        Raises:
            VsembError: as `predict`.
        """
        found = self.predict(signature, **inputs)
        return Embeddings(found["embedding"], found["valid"])

    def search_text(self, texts: Sequence[str | bytes], k: int = 10) -> Found:
        """Finds the best items for texts among those that the model was exported with.

        Args:
            texts: n queries, as `encode_text`.
            k: results of each, 1 to 1,000.

        Raises:
            VsembError: as `encode_text`.
        """
        rows = to_texts(texts)
        if kind := self._text_kind("search"):
            return getattr(self, f"search_{kind}")(self._read(kind, rows), k)
        return self.search("search_text", k, text=rows)

    def search_image(self, images: Sequence[bytes | str | os.PathLike[str]], k: int = 10) -> Found:
        """Finds the best items for images among those that the model was exported with.

        Args:
            images: n queries, as `encode_image`.
            k: results of each, 1 to 1,000.
        """
        return self.search("search_image", k, image_bytes=to_images(images))

    def search(self, signature: str, k: int, **queries: Any) -> Found:
        """Asks a signature that searches.

        Args:
            signature: its name, such as `search_text`.
            k: results of each query, 1 to 1,000.
            **queries: its other inputs.

        Raises:
            VsembError: as `predict`.
        """
        require("k", k, Annotated[int, between(1, 1000)])
        rows = len(next(iter(queries.values())))
        answer = self.predict(signature, **queries, k=np.full(rows, k, np.int32))
        # A server that puts requests together may give all rows as many places as the largest k asks for.
        ids, scores, keys = (answer[name][:, :k] for name in ("ids", "scores", "keys"))
        named = [
            [key.decode(errors="replace") for key, item in zip(*row, strict=True) if item >= 0]
            for row in zip(keys, ids, strict=True)
        ]
        return Found(ids, scores, named, answer["valid"])

    def _text_kind(self, verb: str) -> str | None:
        """What the model takes where others take texts; None for texts."""
        known = self.signatures()
        kinds = [kind for kind in registry.entries("client_texts") if f"{verb}_{kind}" in known]
        return kinds[0] if kinds and f"{verb}_text" not in known else None

    def _read(self, kind: str, texts: list[bytes]) -> Any:
        """Returns texts as what the model takes in their place."""
        if kind not in self._readers:
            self._readers[kind] = registry.load(registry.entries("client_texts")[kind])(self.parser)
        return self._readers[kind](texts)

    def signature(self, name: str) -> SignatureInfo:
        """Returns what one signature takes and gives.

        Raises:
            InvalidArgumentError: for one that the model does not have.
        """
        known = self.signatures()
        if name not in known:
            # A newer version may have it.
            known = self.signatures(refresh=True)
        if name not in known:
            raise unknown_name("signature", name, sorted(known))
        return known[name]

    def _run(self, signature: str, info: SignatureInfo, arrays: Arrays) -> Arrays:
        return self._attempted(functools.partial(self._transport.predict, signature, arrays, info.outputs))

    def _attempted(self, attempt: Callable[[float], Result]) -> Result:
        return attempted(attempt, self.timeout, self.retries)


def to_array(name: str, values: Any, info: TensorInfo) -> np.ndarray:
    """Returns values as an array of the input's type."""
    if info.dtype == object:
        encode = np.vectorize(functools.partial(_encoded, name), otypes=[object])
        result = encode(np.asarray(values, object))
    else:
        try:
            given = np.asarray(values)
            fits = given.size == 0 or np.can_cast(given.dtype, info.dtype, "same_kind")
            with np.errstate(over="ignore"):
                result = given.astype(info.dtype)
            # What is a whole number too large would come back as another one.
            fits = fits and (info.dtype.kind not in "iu" or np.array_equal(result, given))
        except (ValueError, TypeError, OverflowError):
            fits = False
        if not fits:
            raise invalid_argument(name, values, f"values of type {info.dtype}")
    if info.shape is not None and len(info.shape) != result.ndim:
        raise invalid_argument(name, f"shape {result.shape}", f"{len(info.shape)} dimensions")
    return result


def _encoded(name: str, text: object) -> bytes:
    if not isinstance(text, str | bytes):
        raise invalid_argument(name, text, "strings or bytes, in rows of one length")
    # What is no text of Unicode is the server's to replace.
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text


def requests_of(arrays: Sequence[np.ndarray], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last row but one of each request.

    Args:
        arrays: the inputs, with equally many rows, one at least.
        most_rows: of a request.
        most_bytes: of a request, unless a single row has more.

    Example:

    >>> list(requests_of([np.array([b"abc", b"d", b"e"], object)], most_rows=2, most_bytes=3))
    [(0, 1), (1, 3)]
    """
    sizes = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        if array.dtype == object:
            sizes += [sum(map(len, row)) for row in array.reshape(len(array), -1)]
        else:
            sizes += array[:1].nbytes
    start, size = 0, 0
    for row, row_size in enumerate(sizes.tolist()):
        if row > start and (row - start >= most_rows or size + row_size > most_bytes):
            yield start, row
            start, size = row, 0
        size += row_size
    yield start, len(sizes)


def to_texts(texts: Sequence[str | bytes]) -> list[bytes]:
    """Returns texts as bytes."""
    _refuse_one("texts", texts)
    return [_encoded("texts", text) for text in texts]


def to_images(images: Sequence[bytes | str | os.PathLike[str]]) -> list[bytes]:
    """Returns images as the content of their files; see `Client.encode_image`."""
    _refuse_one("images", images)
    contents = []
    for image in images:
        if isinstance(image, bytes | bytearray | memoryview):
            contents.append(bytes(image))
            continue
        if not isinstance(image, str | os.PathLike):
            raise invalid_argument("images", type(image).__name__, "bytes of a JPEG or PNG file, or its path")
        try:
            contents.append(Path(image).read_bytes())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"Cannot read the image {os.fspath(image)}: {reason}.") from error
    return contents


def _refuse_one(name: str, values: object) -> None:
    if isinstance(values, str | bytes | bytearray | os.PathLike):
        raise invalid_argument(name, type(values).__name__, "a list, with one entry for each row")
