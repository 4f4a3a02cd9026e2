"""REST and gRPC connections to a model on a server, with TensorFlow Serving's APIs; a call is one attempt."""

from __future__ import annotations

import abc
import base64
import json
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import BadStatusLine
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
import urllib3

from vsemb.errors import DataError, VsembError, invalid_argument, needs_extra, one_line, reason_of
from vsemb.files import read_bytes, require_regular
from vsemb.serving.access import require_token
from vsemb.serving.status import Code

Arrays = dict[str, np.ndarray]
Result = TypeVar("Result")

_PORTS = {"http": 80, "https": 443, "grpc": 8500, "grpcs": 443}

# TensorFlow's names of types in metadata -> NumPy's types; strings are `bytes` objects.
_DTYPES = {
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64")},
    **{f"DT_{name.upper()}": np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
    "DT_HALF": np.dtype(np.float16),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_STRING": np.dtype(object),
}

# Seconds of the first and the longest pause between two attempts.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class ServingError(VsembError):
    """A call to a server failed.

    Args:
        code: gRPC's name of the status, over REST too, e.g. `"NOT_FOUND"`. `"UNAVAILABLE"` includes an unreachable
            server, `"DEADLINE_EXCEEDED"` includes the client's timeout.
        message: one line about the failure.
        detail: the server's message; "" for an empty answer.
        http_status: status of the HTTP answer; None over gRPC and without an answer.

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
        shape: sizes, None for open ones; None for an unknown rank.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class SignatureInfo:
    """Inputs and outputs of one signature by name.

    Attributes:
        inputs: name -> type and shape.
        outputs: name -> type and shape.
        optional: inputs with a default.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class VersionStatus:
    """One version of a model on a server.

    Attributes:
        version: version number.
        state: `START`, `LOADING`, `AVAILABLE`, `UNLOADING` or `END`.
        error_code: `OK`, or the code of the error that prevents serving.
        error_message: message of that error.
    """

    version: int
    state: str
    error_code: str = "OK"
    error_message: str = ""


@dataclass(eq=False)
class Transport(abc.ABC):
    """Connection to a model on a server; thread-safe. Each call is one attempt.

    Args:
        where: `SCHEME://HOST:PORT`, IPv6 in brackets; for REST also the path before `/v1`.
        model: name of the model.
        version: version number; None for the newest, or the label's.
        label: label of a version; None for none.
        token: bearer token of the server; None for none.
        ca_file: PEM file of the authorities that may sign the server's certificate; default: the system's.
    """

    where: str
    model: str
    version: int | None
    label: str | None
    token: str | None = field(default=None, repr=False)
    ca_file: str | os.PathLike[str] | None = None

    #: Name of the API, and HTTP status of its answers.
    api: ClassVar[str]
    success: ClassVar[int | None] = None

    @abc.abstractmethod
    def __post_init__(self) -> None:
        """Prepare the connections, which the first call opens."""

    @abc.abstractmethod
    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        """Run a signature.

        Args:
            signature: name of the signature.
            inputs: name -> array of the input's type; strings as `bytes` objects.
            outputs: name -> type and shape of the output.
            timeout: maximum number of seconds.

        Returns:
            Output name -> array.

        Raises:
            ServingError: if the server refuses the request or does not answer.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abc.abstractmethod
    def _asked(self, metadata: bool, timeout: float) -> dict[str, Any]:
        """Return the model's GetModelMetadataResponse or GetModelStatusResponse, as JSON."""

    def signatures(self, timeout: float) -> dict[str, SignatureInfo]:
        """Return the model's signatures by name.

        Args:
            timeout: maximum number of seconds.

        Raises:
            ServingError: as `predict`.
        """
        answer = self._asked(True, timeout)
        try:
            definitions = answer["metadata"]["signature_def"]["signature_def"]
            return {
                name: SignatureInfo(
                    _infos(value.get("inputs")), _infos(value.get("outputs")), frozenset(value.get("defaults") or ())
                )
                for name, value in sorted(definitions.items())
                # Metadata also lists the initializer of a model.
                if not name.startswith("__")
            }
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._odd(f"the metadata cannot be read, {error!r}") from error

    def status(self, timeout: float) -> list[VersionStatus]:
        """Return the states of the model's versions.

        Args:
            timeout: maximum number of seconds.

        Raises:
            ServingError: as `predict`.
        """
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

    def _other_api(self, api: str, scheme: str) -> ServingError:
        """Return the error for a port that speaks another API, with the URL of that API and the usual port of ours."""
        address = self.where.partition("://")[2]
        own = {"REST": 8501, "gRPC": 8500}[self.api]
        return ServingError(
            "UNAVAILABLE",
            f"The port of {self.where} speaks {api}, not {self.api}. Use {scheme}://{address}, or the port of "
            f"{self.api}, by default {own}.",
        )

    def _too_slow(self, seconds: float) -> ServingError:
        return ServingError(
            "DEADLINE_EXCEEDED",
            f"The server at {self.where} did not answer within {seconds:.3g} seconds. Pass a longer timeout or a "
            "smaller batch_size.",
        )

    def _refused(self, code: str, detail: str, http_status: int | None = None) -> ServingError:
        detail = one_line(detail)
        shown = code if http_status is None else f"HTTP {http_status} {code}"
        return ServingError(code, f"The server at {self.where} answered {shown}: {detail}", detail, http_status)

    def _odd(self, what: str) -> ServingError:
        return self._refused(
            "UNKNOWN", f"the answer must follow TensorFlow Serving's {self.api} API: {what}", self.success
        )


def _infos(tensors: Mapping[str, Any] | None) -> dict[str, TensorInfo]:
    infos = {}
    for name, tensor in sorted((tensors or {}).items()):
        shape = tensor.get("tensor_shape") or {}
        sizes = [int(dim["size"]) for dim in shape.get("dim") or []]
        known = tuple(None if size < 0 else size for size in sizes)
        infos[name] = TensorInfo(_DTYPES[tensor["dtype"]], None if shape.get("unknown_rank") else known)
    return infos


# HTTP statuses of TensorFlow Serving and of proxies -> codes of gRPC.
_CODES = {code.value: code.name for code in Code} | {
    403: "PERMISSION_DENIED",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
}

# Start of the first frame of an HTTP/2 server, which does not wait for a request: its length and its type, SETTINGS.
_SETTINGS = "\0\0"

# NumPy's kind of a type -> kinds that JSON may contain: floats may lack a point, and an empty list is float.
_KINDS = {"f": "fiu", "i": "iuf", "u": "iuf", "b": "bf"}


class RestTransport(Transport):
    """REST over at most 16 persistent connections; see `Transport`."""

    api, success = "REST", 200

    def __post_init__(self) -> None:
        self._base = f"{self.where}/v1/models/{quote(self.model, safe='')}"
        if self.label is not None:
            self._base += f"/labels/{quote(self.label, safe='')}"
        elif self.version is not None:
            self._base += f"/versions/{self.version}"
        ca_file = None if self.ca_file is None else os.fspath(self.ca_file)
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, ca_certs=ca_file, cert_reqs="CERT_REQUIRED")
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self.token is not None:
            self._headers["Authorization"] = f"Bearer {self.token}"

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        columns = {name: _json(value) for name, value in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        answered = self._call("POST", f"{self._base}:predict", timeout, body).get("outputs")
        if len(outputs) == 1:
            # A single output has no name.
            answered = {next(iter(outputs)): answered}
        if not isinstance(answered, dict) or answered.keys() != outputs.keys():
            raise self._odd("outputs are missing")
        try:
            return {name: _array(answered[name], info) for name, info in outputs.items()}
        except (ValueError, TypeError, OverflowError) as error:
            raise self._odd(f"an output cannot be read, {error}") from error

    def close(self) -> None:
        self._pool.clear()

    def _asked(self, metadata: bool, timeout: float) -> dict[str, Any]:
        return self._call("GET", f"{self._base}/metadata" if metadata else self._base, timeout)

    def _call(self, method: str, url: str, timeout: float, body: bytes | None = None) -> dict[str, Any]:
        limits, end = urllib3.Timeout(total=timeout), time.monotonic() + timeout
        content = bytearray()
        try:
            response = self._pool.request(
                method, url, body=body, headers=self._headers, timeout=limits, redirect=False, preload_content=False
            )
            # urllib3 applies its time limit to each part of an answer, not to the whole.
            while part := response.read1(2**16):
                content += part
                if time.monotonic() > end:
                    response.close()
                    raise self._too_slow(timeout)
            response.release_conn()
        # Handle this exception before its base classes, which include lost connections.
        except urllib3.exceptions.NewConnectionError as error:
            raise self._unreachable(error.__cause__ or error) from error
        except urllib3.exceptions.TimeoutError as error:
            raise self._too_slow(timeout) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            odd = [str(reason.args[0]) for reason in error.args if isinstance(reason, BadStatusLine)]
            if any(line.startswith(_SETTINGS) for line in odd):
                raise self._other_api("gRPC", "grpc") from error
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
            raise self._odd("it is not a JSON object")
        return answer


def _json(array: np.ndarray) -> Any:
    """Convert an array to JSON values; strings become base64, which can hold any bytes."""
    if array.dtype == object:
        array = np.vectorize(lambda value: {"b64": base64.b64encode(value).decode("ascii")}, otypes=[object])(array)
    return array.tolist()


def _array(value: Any, info: TensorInfo) -> np.ndarray:
    """Convert JSON values to an array with the type and rank of the metadata."""
    if info.dtype == object:
        array = np.vectorize(_bytes, otypes=[object])(np.asarray(value, object))
    else:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in _KINDS[info.dtype.kind]:
            raise ValueError(f"{array.dtype} instead of {info.dtype}")
        array = array.astype(info.dtype)
    if info.shape is not None and array.ndim < len(info.shape) and array.size == 0:
        # An empty list has no row to infer the shape from.
        missing = info.shape[array.ndim :]
        array = array.reshape(*array.shape, *(0 if size is None else size for size in missing))
    return array


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"])
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a string")
    return value.encode("utf-8", errors="surrogateescape")


#: Maximum bytes of a message; gRPC's default is 4 MB.
LARGEST_MESSAGE = 256 * 2**20

# Words in gRPC's messages about unreachable servers.
_OF_THE_CONNECTION = ("connect", "Socket closed", "resolv")

# Words in gRPC's messages about servers that answer with HTTP/1.1.
_OF_HTTP_1 = ("Failed parsing HTTP/2", "http1.x")

_OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # Disable gRPC's retries, since the client retries.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Ignore proxies of the environment, which are for web pages.
    ("grpc.enable_http_proxy", 0),
]


class GrpcTransport(Transport):
    """gRPC over one connection; see `Transport`.

    Imports TensorFlow, because the API's messages contain TensorFlow's.

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
            roots = None if self.ca_file is None else read_bytes(self.ca_file)
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(roots), options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._metadata = [] if self.token is None else [("authorization", f"Bearer {self.token}")]
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
        # Arrays backed by the message are read-only.
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
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or "no reason given"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise self._too_slow(timeout) from error
            # A reachable server may also answer UNAVAILABLE; its message has other words.
            if any(word in details for word in _OF_HTTP_1):
                raise self._other_api("REST", "http") from error
            if code is grpc.StatusCode.UNAVAILABLE and any(word in details for word in _OF_THE_CONNECTION):
                raise self._unreachable(details) from error
            raise self._refused(code.name, details) from error


def message_to_json(message: Any) -> dict[str, Any]:
    """Convert a protobuf message to JSON, as TensorFlow Serving's REST API does."""
    from google.protobuf import json_format

    return json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )


def connect(
    url: str,
    model: str,
    version: int | None,
    label: str | None,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
) -> Transport:
    """Return the transport to a model; the first call opens the connection.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, `grpc://HOST:PORT` or `grpcs://HOST:PORT`; for REST also with a
            path.
        model: name of the model.
        version: version number; None for the newest, or the label's.
        label: label of a version; None for none.
        token: see `Transport`.
        ca_file: see `Transport`.

    Raises:
        InvalidArgumentError: for an invalid URL, name or token.
        DataError: if `ca_file` holds no certificates.
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
        raise invalid_argument("url", url, allowed, "Omit the path for gRPC.")
    if re.search(r"/v1(/|$)", path):
        raise invalid_argument("url", url, allowed, "Pass the model as `model`.")
    for argument, name in (("model", model), *((("label", label),) if label is not None else ())):
        if not isinstance(name, str) or not re.fullmatch(r"[^/:\s]+", name):
            raise invalid_argument(argument, name, f"the name of a {argument}, without / and :")
    host = f"[{host}]" if ":" in host else host
    where = f"{parts.scheme}://{host}:{_PORTS[parts.scheme] if port is None else port}{path}"
    require_token(token)
    if ca_file is not None:
        try:
            ssl.create_default_context(cafile=require_regular(ca_file))
        except OSError as error:
            raise DataError(f"{ca_file} must be a PEM file of certificates: {reason_of(error)}.") from error
    return (RestTransport if rest else GrpcTransport)(where, model, version, label, token, ca_file)


def attempted(attempt: Callable[[float], Result], timeout: float, retries: int) -> Result:
    """Call with retries after `UNAVAILABLE`; predictions are idempotent.

    Args:
        attempt: called with the remaining seconds.
        timeout: total seconds, including pauses.
        retries: maximum number of retries.

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
            # Jitter spreads the retries of many clients.
            seconds = min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
            if error.code != "UNAVAILABLE" or number == retries or time.monotonic() + seconds >= end:
                raise
        time.sleep(seconds)
    raise AssertionError("unreachable")
