"""Request handling shared by gRPC and REST: admission, model lookup, prediction, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import prometheus_client as prometheus
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from vsemb.serving.batching import Batcher
from vsemb.serving.budget import Budget, count_rows
from vsemb.serving.models import Arrays, LoadedModel, LoadedSignature, ModelVersions, not_served
from vsemb.serving.status import Code, RequestError, invalid

#: Requests and answers larger than this, in bytes, are converted in a thread.
LARGE = 64 * 1024

# Bytes of an answer while it is encoded, per byte of its arrays.
_COPIES = 8


@dataclass
class Call:
    """Labels of one request in the metrics.

    Attributes:
        protocol: `grpc` or `rest`.
        model: name of the model; "" until it is known to exist.
        signature: name of the signature; "" until it is known to exist.
    """

    protocol: str
    model: str = ""
    signature: str = ""


@dataclass(eq=False)
class Predictor:
    """Admit requests, find their model and run them.

    Args:
        models: name -> versions.
        batcher: runs the requests.
        metrics: counts the requests.
        concurrency: maximum number of requests in flight; more are refused.
        max_rows: maximum rows of a request; more are refused.
        bytes: bytes of the predict requests that are being read or answered.
        answers: bytes of their answers. A separate budget, because a request that waits for it holds its own bytes.
    """

    models: Mapping[str, ModelVersions]
    batcher: Batcher
    metrics: Metrics
    concurrency: int
    max_rows: int
    bytes: Budget
    answers: Budget

    def __post_init__(self) -> None:
        self._in_flight = 0
        self.draining = False
        self.metrics.in_flight.set_function(lambda: self._in_flight)
        self.metrics.waiting.set_function(lambda: self.batcher.waiting)
        self.metrics.pixels.set_function(lambda: self.batcher.pixels)
        self.metrics.bytes.set_function(lambda: self.bytes.used + self.answers.used)

    @contextlib.contextmanager
    def admitted(self, protocol: str) -> Iterator[Call]:
        """Count a request from its arrival to its answer.

        Raises:
            RequestError: RESOURCE_EXHAUSTED beyond the limit, UNAVAILABLE while the server stops.
        """
        call, started, code = Call(protocol), time.perf_counter(), Code.OK
        admitted = False
        try:
            if self.draining:
                raise RequestError(Code.UNAVAILABLE, "The server is shutting down.")
            if self._in_flight >= self.concurrency:
                busy = f"The server is handling {self.concurrency} requests, its maximum. Try again."
                raise RequestError(Code.RESOURCE_EXHAUSTED, busy, 503)
            admitted = True
            self._in_flight += 1
            yield call
        except RequestError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        except BaseException:
            code = Code.INTERNAL
            raise
        finally:
            self._in_flight -= admitted
            labels = (call.model, call.signature, call.protocol)
            self.metrics.requests.labels(*labels, code.name).inc()
            self.metrics.seconds.labels(*labels).observe(time.perf_counter() - started)

    def health(self) -> dict[str, str]:
        """Return the state of a server that answers requests.

        Raises:
            RequestError: UNAVAILABLE while the server stops, or if a model has no version that is served.
        """
        missing = [name for name, versions in self.models.items() if not versions.available]
        if self.draining:
            raise RequestError(Code.UNAVAILABLE, "The server is shutting down.")
        if missing:
            raise RequestError(Code.UNAVAILABLE, f"No version of {missing[0]} is served.")
        return {"status": "SERVING"}

    def model(self, name: str, version: int | None = None) -> ModelVersions:
        """Return a model's versions; `version` is only used in the error.

        Raises:
            RequestError: NOT_FOUND for an unknown name.
        """
        if name not in self.models:
            raise not_served(name, version)
        return self.models[name]

    def status(self, name: str, version: int | None = None, label: str | None = None) -> Any:
        """Return the GetModelStatusResponse of a model, or of one of its versions.

        Raises:
            RequestError: NOT_FOUND for an unknown model or version, INVALID_ARGUMENT for an unknown label.
        """
        versions = self.models[name].versions if name in self.models else {}
        if versions and label:
            version = self.models[name].labelled(label)
        fitting = [one for number, one in sorted(versions.items(), reverse=True) if version in (None, number)]
        if not fitting:
            which = "any versions" if version is None else f"version {version}"
            raise RequestError(Code.NOT_FOUND, f"Could not find {which} of model {name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for one in fitting:
            status = response.model_version_status.add(version=one.number, state=one.state)
            if one.error:
                # google.rpc.Code UNKNOWN, which TensorFlow Serving reports for most failures to load.
                status.status.error_code = 2
                status.status.error_message = one.error
        return response

    def metadata(self, name: str, version: int | None = None, label: str | None = None) -> Any:
        """Return the GetModelMetadataResponse of a version: its signatures.

        Raises:
            RequestError: as `model` and `ModelVersions.lease`.
        """
        with self.model(name, version).lease(version, label) as (number, model):
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = name
            response.model_spec.version.value = number
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=model.signature_defs)
            response.metadata["signature_def"].Pack(signatures)
            return response

    async def run(
        self,
        model: LoadedModel,
        signature: LoadedSignature,
        inputs: Arrays,
        on_end: Callable[[Callable[[], None]], object],
        wanted: Sequence[str] = (),
    ) -> Arrays:
        """Compute the outputs of a request.

        Args:
            model: the version.
            signature: one of its signatures.
            inputs: name -> array, unchecked.
            on_end: registers a function to call when the answer has been sent; it releases the answer's bytes.
            wanted: names of outputs; empty for all.

        Raises:
            RequestError: INVALID_ARGUMENT for invalid inputs or names, or too many rows; errors of the model.
        """
        for place, name in enumerate(wanted):
            if name not in signature.outputs:
                known = ",".join(sorted(signature.outputs))
                raise invalid(
                    f"output tensor alias not found in signature: {name} Outputs expected to be in the set {{{known}}}."
                )
            if name in wanted[:place]:
                raise invalid(f"duplicate output tensor alias: {name}")
        inputs = signature.check(inputs)
        rows = count_rows(inputs)
        if rows > self.max_rows:
            raise invalid(f"The request must have at most {self.max_rows} rows; got {rows}. Send it in parts.")
        if signature.row_bytes is not None:
            await self._hold(rows * signature.row_bytes, on_end)
        outputs = await self.batcher.run(model, signature, inputs)
        if signature.row_bytes is None:
            await self._hold(sum(array.nbytes for array in outputs.values()), on_end)
        return {name: outputs[name] for name in wanted or signature.outputs}

    async def _hold(self, size: int, on_end: Callable[[Callable[[], None]], object]) -> None:
        """Count the bytes of an answer until it has been sent."""
        keep = await self.answers.take(size * _COPIES)
        on_end(functools.partial(keep, 0))


async def aside(size: int, function: Any, *arguments: Any) -> Any:
    """Call a function, in a thread for large sizes in bytes."""
    if size <= LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Metrics of one server, in its own registry, so that a process can run several servers.

    Args:
        models: name -> versions.
    """

    def __init__(self, models: Mapping[str, ModelVersions]) -> None:
        self._models = models
        self.registry = prometheus.CollectorRegistry()
        counter = functools.partial(prometheus.Counter, registry=self.registry)
        gauge = functools.partial(prometheus.Gauge, registry=self.registry)
        histogram = functools.partial(prometheus.Histogram, registry=self.registry)
        labels = ["model", "signature", "protocol"]
        self.requests = counter("vsemb_requests", "Predict requests answered.", [*labels, "code"])
        answering = "Time from a request's arrival to its answer."
        self.seconds = histogram("vsemb_request_seconds", answering, labels, buckets=_SECONDS)
        self.rows = histogram("vsemb_batch_rows", "Rows of each batch that ran.", labels[:2], buckets=_ROWS)
        self.in_flight = gauge("vsemb_requests_in_flight", "Requests being answered.")
        self.waiting = gauge("vsemb_requests_waiting", "Requests that wait for a thread.")
        self.pixels = gauge("vsemb_pixels_in_flight", "Pixels of the images in running batches.")
        self.bytes = gauge("vsemb_bytes_in_flight", "Bytes of the requests that are read or answered.")
        self._versions = gauge("vsemb_model_available", "1 for each version that is served.", ["model", "version"])

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self._versions.clear()
        for name, model in self._models.items():
            for number in model.available:
                self._versions.labels(name, str(number)).set(1)
        return prometheus.generate_latest(self.registry)
