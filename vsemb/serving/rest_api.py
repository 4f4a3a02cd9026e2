"""The REST API over HTTP: paths, limits and errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import zlib

from aiohttp import web
from aiohttp.http import HttpProcessingError

from vsemb.serving.access import Access
from vsemb.serving.budget import ARRIVAL_SECONDS
from vsemb.serving.openapi import describe
from vsemb.serving.request_handler import CONTENT_TYPE, LARGE, Predictor, aside
from vsemb.serving.rest_json import decode, encode, encoded_parts
from vsemb.serving.status import Code, RequestError, foreign_host, invalid, unauthenticated
from vsemb.serving.transports import message_to_json

LOG = logging.getLogger("vsemb.serving")


def _is_failure_of_the_server(record: logging.LogRecord) -> bool:
    """Return whether aiohttp reports another error than a client's malformed HTTP, answered with status 400."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


HTTP_LOG = logging.getLogger("vsemb.serving.rest_api")
HTTP_LOG.addFilter(_is_failure_of_the_server)

METRICS_PATHS = ("/metrics", "/monitoring/prometheus/metrics")
HEALTH_PATH = "/health"

_JSON = "application/json"

# TensorFlow Serving's headers for web pages of other origins; in addition, they may send a token.
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type, Authorization",
}

# Maximum seconds between two parts of a body. A slower client would block a slot.
_SILENT_SECONDS = 10

# Bodies of more bytes are parsed one at a time.
_HUGE = 2**20

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<method>classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_LOOK = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.IGNORECASE | re.ASCII)


class RestApi:
    """Handler of HTTP requests.

    Args:
        predictor: runs the requests.
        max_body: maximum bytes of a request's body.
        access: token of the server.
        host: address that the server listens on.
        cors: whether web pages of any origin may call the API.
    """

    def __init__(self, predictor: Predictor, max_body: int, access: Access, host: str, cors: bool = False) -> None:
        self._host = host
        self._headers = _CORS if cors else {}
        self._predictor = predictor
        self._access = access
        self._max_body = max_body
        self._parsing = asyncio.Lock()

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer, expect_handler=self._expect)
        return application

    async def _expect(self, request: web.Request) -> web.Response | None:
        """Answer `Expect: 100-continue`; refuse a body above the limit."""
        if (request.content_length or 0) > self._max_body:
            return self._error(self._too_large())
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # Otherwise the header of the answer would count as sent.
            request.writer.output_size = 0
        return None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        response = await self._answer(request)
        if not response.prepared:
            response.headers.update(self._headers)
        return response

    async def answer_in_room(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of a connection above the limit: about health and metrics only."""
        if request.path not in (*METRICS_PATHS, HEALTH_PATH):
            busy = RequestError(Code.RESOURCE_EXHAUSTED, "The server has its maximum of connections. Try again.", 503)
            response: web.StreamResponse = self._error(busy)
        else:
            response = await self.answer(request)
        response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if not self._access.accepts_host(request.headers.get("Host", ""), self._host):
                raise foreign_host()
            if self._headers and request.method == "OPTIONS":
                # Browsers ask without a token.
                return web.Response()
            if not self._access.allows(request.headers.get("Authorization", "")):
                raise unauthenticated()
            if request.path in METRICS_PATHS and request.method in ("GET", "HEAD"):
                return web.Response(body=self._predictor.metrics.text(), headers={"Content-Type": CONTENT_TYPE})
            if request.path == HEALTH_PATH and request.method in ("GET", "HEAD"):
                return web.json_response(self._predictor.health())
            if request.path == "/openapi.json" and request.method in ("GET", "HEAD"):
                return web.json_response(describe(self._predictor.models))
            return await self._respond(request)
        except RequestError as error:
            return self._error(error)
        except Exception as error:
            # An unexpected error fails only this request.
            LOG.exception("unexpected failure of %s %s", request.method, request.path)
            return self._error(RequestError(Code.INTERNAL, f"Internal error: {type(error).__name__}"))

    def _error(self, error: RequestError) -> web.Response:
        headers = {503: {"Retry-After": "1"}, 405: {"Allow": "GET, POST"}, 401: {"WWW-Authenticate": "Bearer"}}.get(
            error.http_status
        )
        response = web.json_response({"error": error.message}, status=error.http_status, headers=headers)
        if error.http_status in (401, 403, 408, 413):
            # The rest of the body stays unread.
            response.force_close()
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if not path.lower().startswith("/v1/"):
            raise RequestError(Code.NOT_FOUND, f"Not found: {path}")
        allowed = request.method in ("GET", "HEAD", "POST")
        match = (_PREDICT if request.method == "POST" else _LOOK).fullmatch(path)
        if not allowed or not match:
            malformed = f"Malformed request: {request.method} {path}"
            raise RequestError(Code.INVALID_ARGUMENT, malformed, None if allowed else 405)
        if request.method == "POST":
            return await self._post(request, match)
        return web.Response(body=self._get(match), content_type=_JSON)

    def _get(self, match: re.Match[str]) -> bytes:
        name, version, label = match["name"], _number(match["version"]), match["label"]
        if not name:
            raise invalid("Missing model name in request.")
        if not match["metadata"]:
            body = message_to_json(self._predictor.status(name, version, label))
            for one in body["model_version_status"]:
                # TensorFlow Serving writes unset messages, which the converter omits.
                one.setdefault("status", {"error_code": "OK", "error_message": ""})
        else:
            body = message_to_json(self._predictor.metadata(name, version, label))
            del body["metadata"]["signature_def"]["@type"]
        return json.dumps(body, indent=1).encode()

    async def _post(self, request: web.BaseRequest, match: re.Match[str]) -> web.StreamResponse:
        name, version, label = match["name"], _number(match["version"]), match["label"]
        async with contextlib.AsyncExitStack() as stack:
            call = stack.enter_context(self._predictor.admitted("rest"))
            keep = await stack.enter_async_context(self._predictor.bytes.share(self._most_bytes(request)))
            body = await self._read(request)
            keep(len(body))
            versions = self._predictor.model(name, version)
            call.model = name
            if match["method"].lower() != "predict":
                raise RequestError(Code.UNIMPLEMENTED, f"The method must be predict; got {match['method']}.")
            _, model = stack.enter_context(versions.lease(version, label))
            # One after another: Python parses one at a time anyway, and each takes several times its bytes.
            async with self._parsing if len(body) > _HUGE else contextlib.nullcontext():
                parsed = await aside(len(body), decode, body, model.signatures, self._predictor.max_rows)
            call.signature = parsed.signature.name
            outputs = await self._predictor.run(model, parsed.signature, parsed.inputs, stack.callback)
            if sum(array.nbytes for array in outputs.values()) <= LARGE:
                return web.Response(body=encode(outputs, parsed.rows), content_type=_JSON)
            parts, more = [], encoded_parts(outputs, parsed.rows)
            while part := await asyncio.to_thread(next, more, b""):
                parts.append(part)
            return await self._send(request, parts)

    async def _send(self, request: web.BaseRequest, parts: list[bytes]) -> web.StreamResponse:
        """Send a large answer, whose bytes count until they are sent; the client must read in time."""
        response = web.StreamResponse(headers={"Content-Type": _JSON, **self._headers})
        response.content_length = sum(map(len, parts))
        try:
            await response.prepare(request)
            for part in parts:
                async with asyncio.timeout(ARRIVAL_SECONDS):
                    await response.write(part)
            await response.write_eof()
        except (ConnectionError, TimeoutError) as error:
            if request.transport is not None:
                request.transport.abort()
            raise RequestError(Code.CANCELLED, "The client closed the connection, or does not read.") from error
        return response

    def _most_bytes(self, request: web.BaseRequest) -> int:
        """Return an upper limit of a body's bytes: its announced size, or `max_body` if compressed or chunked."""
        announced = request.content_length
        if announced is not None and announced > self._max_body:
            raise self._too_large()
        return self._max_body if announced is None or "Content-Encoding" in request.headers else announced

    async def _read(self, request: web.BaseRequest) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while part := await asyncio.wait_for(request.content.readany(), _SILENT_SECONDS):
                    body += part
                    # The length may be missing from the header.
                    if len(body) > self._max_body:
                        raise self._too_large()
        except web.RequestPayloadError as error:
            # E.g. chunks without a length.
            raise invalid(f"The body cannot be read: {error}") from error
        except ConnectionError as error:
            raise RequestError(Code.CANCELLED, "The client closed the connection.") from error
        except TimeoutError:
            raise RequestError(
                Code.DEADLINE_EXCEEDED,
                f"The body must arrive within {ARRIVAL_SECONDS} seconds, with pauses of at most {_SILENT_SECONDS}.",
                408,
            ) from None
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        return bytes(body) if encoding == "identity" else await aside(len(body), self._unpack, encoding, body)

    def _unpack(self, encoding: str, packed: bytearray) -> bytes:
        """Decompress a body up to the size limit."""
        if encoding not in ("gzip", "x-gzip"):
            refused = f"Content-Encoding must be gzip or identity; got {encoding[:40]}."
            raise RequestError(Code.INVALID_ARGUMENT, refused, 415)
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            body = unpacker.decompress(packed, self._max_body + 1)
        except zlib.error as error:
            raise invalid(f"The body cannot be read as gzip: {error}") from error
        if len(body) > self._max_body:
            raise self._too_large()
        if not unpacker.eof:
            raise invalid("The body cannot be read as gzip: it is incomplete")
        return body

    def _too_large(self) -> RequestError:
        return RequestError(Code.RESOURCE_EXHAUSTED, f"The request's body must be at most {self._max_body} bytes.", 413)


def _number(text: str | None) -> int | None:
    if text is not None and (len(text) > 20 or int(text) >= 2**63):
        raise invalid(f"Failed to convert version: {text[:40]} to numeric.")
    return None if text is None else int(text)
