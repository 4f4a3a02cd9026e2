"""Errors of requests: gRPC's status codes and their HTTP statuses."""

from __future__ import annotations

import enum

from vsemb.errors import VsembError


class Code(enum.Enum):
    """gRPC status codes; the value is the HTTP status."""

    OK = 200
    INVALID_ARGUMENT = 400
    FAILED_PRECONDITION = 412
    NOT_FOUND = 404
    DEADLINE_EXCEEDED = 504
    CANCELLED = 499
    UNAUTHENTICATED = 401
    PERMISSION_DENIED = 403
    RESOURCE_EXHAUSTED = 429
    UNIMPLEMENTED = 501
    UNAVAILABLE = 503
    INTERNAL = 500


class RequestError(VsembError):
    """Error that answers a request.

    Args:
        code: gRPC status code.
        message: message for the client.
        http_status: HTTP status if it differs from the code's, e.g. 413 for a large body.

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


def unauthenticated() -> RequestError:
    """Return the error of a request without the server's token."""
    return RequestError(
        Code.UNAUTHENTICATED,
        "The request must carry the server's token: `Authorization: Bearer TOKEN`. vsemb's clients read VSEMB_TOKEN.",
    )


def foreign_host() -> RequestError:
    """Return the error of a request that names another host, see `vsemb.serving.access.Access.accepts_host`."""
    return RequestError(
        Code.PERMISSION_DENIED,
        "The header Host must name this machine, such as localhost. Set a token, or start the server as `insecure` "
        "behind a gateway that passes on another name.",
    )


def invalid(message: str) -> RequestError:
    """Return the error of an invalid request."""
    return RequestError(Code.INVALID_ARGUMENT, message)
