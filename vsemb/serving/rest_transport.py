"""TensorFlow Serving's REST API, as a client: JSON both ways, without TensorFlow."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
import urllib3

from vsemb.serving.transports import (
    DTYPES,
    Address,
    Arrays,
    ServingError,
    SignatureInfo,
    TensorInfo,
    VersionStatus,
    refused,
    too_slow,
    unreachable,
)

# HTTP statuses and the codes of gRPC that TensorFlow Serving makes them of.
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    412: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestTransport:
    """Speaks HTTP over connections that stay open. Its methods may be called from several threads.

    Args:
        address: where the model is.
        connections: connections that are kept open at most.
    """

    def __init__(self, address: Address, connections: int = 16) -> None:
        scheme = "https" if address.secure else "http"
        self.where = f"{scheme}://{address.host}:{address.port}{address.path}"
        base = f"{self.where}/v1/models/{quote(address.model, safe='')}"
        if address.label is not None:
            base += f"/labels/{quote(address.label, safe='')}"
        elif address.version is not None:
            base += f"/versions/{address.version}"
        self._base = base
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False)

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        """See `Transport.predict`."""
        body = json.dumps(
            {"signature_name": signature, "inputs": {name: _json(value) for name, value in inputs.items()}}
        )
        answer = self._call("POST", f"{self._base}:predict", timeout, body.encode())
        found = answer.get("outputs")
        if len(outputs) == 1:
            # A single output comes without its name.
            found = {next(iter(outputs)): found}
        if not isinstance(found, dict) or found.keys() != outputs.keys():
            raise self._odd("outputs are missing")
        try:
            return {name: _array(found[name], info) for name, info in outputs.items()}
        except (ValueError, TypeError, OverflowError) as error:
            raise self._odd(f"an output cannot be read, {error}") from error

    def signatures(self, timeout: float) -> dict[str, SignatureInfo]:
        """See `Transport.signatures`."""
        answer = self._call("GET", f"{self._base}/metadata", timeout)
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
        """See `Transport.status`."""
        answer = self._call("GET", self._base, timeout)
        try:
            return [
                VersionStatus(
                    int(entry["version"]),
                    entry["state"],
                    entry.get("status", {}).get("error_code", "OK"),
                    entry.get("status", {}).get("error_message", ""),
                )
                for entry in answer["model_version_status"]
            ]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._odd(f"the status cannot be read, {error!r}") from error

    def close(self) -> None:
        """See `Transport.close`."""
        self._pool.clear()

    def _call(self, method: str, url: str, timeout: float, body: bytes | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
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
                    raise too_slow(self.where, timeout)
            response.release_conn()
        # Of its parents that a lost connection has too, hence first.
        except urllib3.exceptions.NewConnectionError as error:
            raise unreachable(self.where, error.__cause__ or error) from error
        except urllib3.exceptions.TimeoutError as error:
            raise too_slow(self.where, timeout) from error
        except urllib3.exceptions.LocationValueError as error:
            raise unreachable(self.where, error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(self.where, error) from error
        try:
            answer = json.loads(bytes(content))
        except (ValueError, RecursionError):
            answer = None
        if response.status != 200:
            said = answer.get("error") if isinstance(answer, dict) else None
            detail = said or content[:200].decode(errors="replace") or response.reason or "no reason given"
            code = _CODES.get(response.status, "UNKNOWN")
            raise refused(self.where, code, str(detail), response.status)
        if not isinstance(answer, dict):
            raise self._odd("it is no JSON object")
        return answer

    def _odd(self, what: str) -> ServingError:
        detail = f"that is not TensorFlow Serving's REST API: {what}"
        return refused(self.where, "UNKNOWN", detail, 200)


def _json(array: np.ndarray) -> Any:
    """Returns an array as JSON has it; strings always in base64, so that any bytes pass."""
    if array.dtype != object:
        return array.tolist()
    flat = [{"b64": base64.b64encode(value).decode("ascii")} for value in array.ravel()]
    if array.ndim == 1:
        return flat
    boxed = np.empty(array.size, object)
    boxed[:] = flat
    return boxed.reshape(array.shape).tolist()


def _array(value: Any, info: TensorInfo) -> np.ndarray:
    """Returns the array that JSON has, in the type and with the rank of the metadata."""
    if info.dtype != object:
        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind not in _KINDS[info.dtype.kind]:
            raise ValueError(f"{array.dtype} instead of {info.dtype}")
        array = array.astype(info.dtype)
    else:
        # The sizes first: NumPy would make an array of the texts themselves, without those at their ends.
        shape = []
        level = value
        while isinstance(level, list):
            shape.append(len(level))
            level = level[0] if level else None
        array = np.empty(shape, object)
        flat = [value]
        for _ in shape:
            flat = [item for part in flat for item in part]
        if len(flat) != array.size:
            raise ValueError("rows of several lengths")
        array.reshape(-1)[:] = [_bytes(item) for item in flat]
    if info.shape is not None and array.ndim < len(info.shape) and array.size == 0:
        # No rows tell nothing of what a row has.
        missing = info.shape[array.ndim :]
        array = array.reshape(*array.shape, *(0 if size is None else size for size in missing))
    return array


# Which kinds of numbers JSON may have for each: whole floats may come without a point, and none at all are
# floats to NumPy.
_KINDS = {"f": "fiu", "i": "iuf", "u": "iuf", "b": "bf"}


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"])
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a string")
    return value.encode("utf-8", errors="surrogateescape")


def _infos(tensors: Mapping[str, Any] | None) -> dict[str, TensorInfo]:
    infos = {}
    for name, tensor in (tensors or {}).items():
        shape = tensor.get("tensor_shape") or {}
        sizes = [int(dim["size"]) for dim in shape.get("dim") or []]
        known = tuple(None if size < 0 else size for size in sizes)
        infos[name] = TensorInfo(DTYPES[tensor["dtype"]], None if shape.get("unknown_rank") else known)
    return dict(sorted(infos.items()))
