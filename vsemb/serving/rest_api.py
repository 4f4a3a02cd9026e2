"""The REST API over HTTP: paths, limits and errors around `vsemb.serving.rest_json`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import zlib

from aiohttp import web
from aiohttp.http import HttpProcessingError

from vsemb.serving.request_handler import CONTENT_TYPE, Predictor, aside
from vsemb.serving.rest_json import decode, encode
from vsemb.serving.status import Code, RequestError, invalid
from vsemb.serving.transports import message_to_json

LOG = logging.getLogger("vsemb.serving")


def _is_failure_of_the_server(record: logging.LogRecord) -> bool:
    """Tells whether aiohttp reports more than a client's broken HTTP, which it answers with status 400."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


HTTP_LOG = logging.getLogger("vsemb.serving.rest_api")
HTTP_LOG.addFilter(_is_failure_of_the_server)

METRICS_PATHS = ("/metrics", "/monitoring/prometheus/metrics")

# Seconds for a body to arrive, and for which it may stand still. A client that is slower holds a place of
# another.
_BODY_SECONDS, _SILENT_SECONDS = 60, 10

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<method>classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_LOOK = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.IGNORECASE | re.ASCII)


class RestApi:
    """Answers HTTP requests.

    Args:
        predictor: what runs them.
        max_body: bytes of a request's body at most.
    """

    def __init__(self, predictor: Predictor, max_body: int) -> None:
        self._predictor = predictor
        self._max_body = max_body

    def application(self) -> web.Application:
        """Returns the aiohttp application."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer, expect_handler=self._expect)
        return application

    async def _expect(self, request: web.Request) -> web.Response | None:
        """Answers `Expect: 100-continue`: a body that is too large is not asked for."""
        if (request.content_length or 0) > self._max_body:
            return self._error(self._too_large())
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # Otherwise the answer's own head would count as sent.
            request.writer.output_size = 0
        return None

    async def answer(self, request: web.Request) -> web.Response:
        """Answers one request."""
        try:
            if request.path in METRICS_PATHS and request.method in ("GET", "HEAD"):
                return web.Response(body=self._predictor.metrics.text(), headers={"Content-Type": CONTENT_TYPE})
            return web.Response(body=await self._body(request), content_type="application/json")
        except RequestError as error:
            return self._error(error)
        except Exception as error:
            # The last resort: one request's failure is that request's alone.
            LOG.exception("unexpected failure of %s %s", request.method, request.path)
            return self._error(RequestError(Code.INTERNAL, f"Internal error: {type(error).__name__}"))

    def _error(self, error: RequestError) -> web.Response:
        headers = {503: {"Retry-After": "1"}, 405: {"Allow": "GET, POST"}}.get(error.http_status)
        response = web.json_response({"error": error.message}, status=error.http_status, headers=headers)
        if error.http_status in (408, 413):
            # The rest of the body, if any, is not read.
            response.force_close()
        return response

    async def _body(self, request: web.Request) -> bytes:
        path = request.path
        if not path.lower().startswith("/v1/"):
            raise RequestError(Code.NOT_FOUND, f"Not found: {path}")
        allowed = request.method in ("GET", "HEAD", "POST")
        match = (_PREDICT if request.method == "POST" else _LOOK).fullmatch(path)
        if not allowed or not match:
            malformed = f"Malformed request: {request.method} {path}"
            raise RequestError(Code.INVALID_ARGUMENT, malformed, None if allowed else 405)
        return await self._post(request, match) if request.method == "POST" else self._get(match)

    def _get(self, match: re.Match[str]) -> bytes:
        name, version, label = match["name"], _number(match["version"]), match["label"]
        if not name:
            raise invalid("Missing model name in request.")
        if not match["metadata"]:
            body = message_to_json(self._predictor.status(name, version, label))
            for one in body["model_version_status"]:
                # A message that is not set is left out by the converter and written by TensorFlow Serving.
                one.setdefault("status", {"error_code": "OK", "error_message": ""})
        else:
            body = message_to_json(self._predictor.metadata(name, version, label))
            del body["metadata"]["signature_def"]["@type"]
        return json.dumps(body, indent=1).encode()

    async def _post(self, request: web.Request, match: re.Match[str]) -> bytes:
        name, version, label = match["name"], _number(match["version"]), match["label"]
        with self._predictor.admitted("rest") as call:
            body = await self._read(request)
            versions = self._predictor.model(name, version)
            call.model = name
            if match["method"].lower() != "predict":
                raise RequestError(Code.UNIMPLEMENTED, f"The method {match['method']} is not implemented; use predict.")
            with versions.lease(version, label) as (_, model):
                parsed = await aside(len(body), decode, body, model.signatures)
                call.signature = parsed.signature.name
                outputs = await self._predictor.run(model, parsed.signature, parsed.inputs)
                size = sum(array.nbytes for array in outputs.values())
                return await aside(size, encode, outputs, parsed.rows)

    async def _read(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._max_body:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while part := await asyncio.wait_for(request.content.readany(), _SILENT_SECONDS):
                    body += part
                    # A body may come without its length.
                    if len(body) > self._max_body:
                        raise self._too_large()
        except web.RequestPayloadError as error:
            # E.g. parts without their lengths.
            raise invalid(f"The body cannot be read: {error}") from error
        except TimeoutError:
            raise RequestError(
                Code.DEADLINE_EXCEEDED,
                f"The body did not arrive within {_BODY_SECONDS} seconds, or stood still for {_SILENT_SECONDS}.",
                408,
            ) from None
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        return bytes(body) if encoding == "identity" else await aside(len(body), self._unpack, encoding, body)

    def _unpack(self, encoding: str, packed: bytearray) -> bytes:
        """Unpacks a compressed body, up to the size that any body may have."""
        if encoding not in ("gzip", "x-gzip"):
            refused = f"Content-Encoding is {encoding[:40]}; allowed: gzip and identity."
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
        return RequestError(Code.RESOURCE_EXHAUSTED, f"The request's body is larger than {self._max_body} bytes.", 413)


def _number(text: str | None) -> int | None:
    if text is not None and (len(text) > 20 or int(text) >= 2**63):
        raise invalid(f"Failed to convert version: {text[:40]} to numeric.")
    return None if text is None else int(text)
