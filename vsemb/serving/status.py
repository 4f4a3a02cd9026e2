"""How a request fails: gRPC's status codes, and the HTTP status that each becomes."""

from __future__ import annotations

import enum

from vsemb.errors import VsembError


class Code(enum.Enum):
    """A gRPC status code by its own name; the value is the HTTP status."""

    OK = 200
    INVALID_ARGUMENT = 400
    FAILED_PRECONDITION = 412
    NOT_FOUND = 404
    DEADLINE_EXCEEDED = 504
    CANCELLED = 499
    RESOURCE_EXHAUSTED = 429
    UNIMPLEMENTED = 501
    UNAVAILABLE = 503
    INTERNAL = 500


class RequestError(VsembError):
    """A request that is answered with an error.

    Args:
        code: what went wrong, in gRPC's terms.
        message: the text that the client sees.
        http_status: the HTTP status where it is not the code's own, e.g. 413 for a large body.

    Example:

    >>> error = RequestError(Code.NOT_FOUND, "Servable not found for request: Latest(pets)")
    >>> error.http_status
    404
    """

    def __init__(self, code: Code, message: str, http_status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = code.value if http_status is None else http_status


def invalid(message: str) -> RequestError:
    """Returns the error of a request that can never succeed as it is."""
    return RequestError(Code.INVALID_ARGUMENT, message)
