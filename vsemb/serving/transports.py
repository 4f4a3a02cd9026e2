"""What both ways to a server share: errors of failed calls, signatures, deadlines and retries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from vsemb.errors import VsembError, one_line

Arrays = dict[str, np.ndarray]
Result = TypeVar("Result")

#: TensorFlow's names of types, as metadata has them, and NumPy's types; strings are `bytes` objects.
DTYPES: dict[str, np.dtype] = {
    "DT_BOOL": np.dtype(bool),
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_HALF": np.dtype(np.float16),
    "DT_INT8": np.dtype(np.int8),
    "DT_INT16": np.dtype(np.int16),
    "DT_INT32": np.dtype(np.int32),
    "DT_INT64": np.dtype(np.int64),
    "DT_STRING": np.dtype(object),
    "DT_UINT8": np.dtype(np.uint8),
    "DT_UINT16": np.dtype(np.uint16),
    "DT_UINT32": np.dtype(np.uint32),
    "DT_UINT64": np.dtype(np.uint64),
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


@dataclass(frozen=True)
class Address:
    """Where a model is.

    Attributes:
        host: a name or an address; IPv6 in brackets.
        port: the port.
        model: the model's name.
        version: one version; None for the newest, or the label's.
        label: a label; None for none.
        secure: whether the connection is encrypted.
        path: what stands before `/v1` in REST's URLs, without a slash at its end.
    """

    host: str
    port: int
    model: str
    version: int | None = None
    label: str | None = None
    secure: bool = False
    path: str = ""


class Transport(Protocol):
    """A way to a server: each method is one attempt, with the seconds it may take."""

    def predict(self, signature: str, inputs: Arrays, outputs: Mapping[str, TensorInfo], timeout: float) -> Arrays:
        """Runs a signature; `outputs` tells the types that the answer is to have."""

    def signatures(self, timeout: float) -> dict[str, SignatureInfo]:
        """Returns the model's signatures."""

    def status(self, timeout: float) -> list[VersionStatus]:
        """Returns the states of the model's versions."""

    def close(self) -> None:
        """Closes the connections."""


def attempted(
    attempt: Callable[[float], Result],
    timeout: float,
    retries: int,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Result:
    """Calls until an attempt succeeds, fails for good, or time or attempts run out.

    Only `UNAVAILABLE` is tried again: predictions change nothing, so a connection that broke may have
    carried one or not.

    Args:
        attempt: called with the seconds that are left.
        timeout: seconds for everything, the pauses too.
        retries: attempts after the first.
        pause: waits for some seconds.
        now: tells the time in seconds.

    Raises:
        ServingError: of the last attempt.

    Example:

    >>> attempted(lambda seconds: "answer", timeout=1.0, retries=2)
    'answer'
    """
    end = now() + timeout
    for number in range(retries + 1):
        try:
            return attempt(max(end - now(), 1e-3))
        except ServingError as error:
            # Chance keeps many clients from coming back all at once.
            seconds = min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
            if error.code != "UNAVAILABLE" or number == retries or now() + seconds >= end:
                raise
        pause(seconds)
    raise AssertionError("unreachable")


def unreachable(where: str, reason: object) -> ServingError:
    """Returns the error for a server that does not answer."""
    return ServingError(
        "UNAVAILABLE",
        f"No server answers at {where} ({one_line(reason, 200)}). Check the address, or start one with: "
        "vsemb serve savedmodels/NAME",
    )


def too_slow(where: str, seconds: float) -> ServingError:
    """Returns the error for an answer that came too late."""
    return ServingError(
        "DEADLINE_EXCEEDED",
        f"The server at {where} did not answer within {seconds:.3g} seconds. Give the client a longer "
        "timeout, or a smaller batch_size.",
    )


def refused(where: str, code: str, detail: str, http_status: int | None = None) -> ServingError:
    """Returns the error for an answer that is an error."""
    detail = one_line(detail)
    shown = code if http_status is None else f"HTTP {http_status} {code}"
    return ServingError(code, f"The server at {where} answered {shown}: {detail}", detail, http_status)
