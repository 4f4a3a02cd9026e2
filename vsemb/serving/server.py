"""A server of SavedModels in this process, with TensorFlow Serving's gRPC and REST API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from vsemb.errors import DataError, VsembError, invalid_argument, needs_extra
from vsemb.serving.batching import Batcher
from vsemb.serving.http import HTTP_LOG, RestApi
from vsemb.serving.metrics import Metrics
from vsemb.serving.request_handler import Predictor
from vsemb.serving.rpc import ModelService, PredictionService
from vsemb.serving.versions import LOG, ModelVersions, Policy

Result = TypeVar("Result")


class Server:
    """Serves models over gRPC and REST, in a thread of its own.

    Args:
        models: name -> directory with the model's versions, e.g. `{"pets": "savedmodels/pets"}`.
        host: the address to listen on.
        port: gRPC's port; 0 for any free one.
        rest_port: REST's port; 0 for any free one.
        max_body: bytes of a request at most.
        concurrency: requests at a time; more are refused at once.
        batch_size: rows of a merged batch at most; 1 turns merging off.
        batch_timeout: seconds that a request waits at most for others while a thread is free and another
            works; see `Batcher`.
        threads: batches that run at a time; None for one for each core.
        versions: `latest`, `all`, or the numbers of the versions to serve.
        labels: label -> version, e.g. `{"stable": 1}`; labelled versions are served in any case.
        poll: seconds between two looks for new versions; 0 for none after the first.
        grace: seconds that `stop` gives to requests in flight.

    Raises:
        MissingExtraError: if the extra `serving` is not installed.
        InvalidArgumentError: for a value out of range.
        DataError: if a model's directory is missing or holds no version.

    Example:

        with Server({"pets": "savedmodels/pets"}, port=0, rest_port=0) as server:
            print(f"http://127.0.0.1:{server.rest_port}/v1/models/pets")
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 8500,
        rest_port: int = 8501,
        max_body: int = 32 * 2**20,
        concurrency: int = 256,
        batch_size: int = 64,
        batch_timeout: float = 0.001,
        threads: int | None = None,
        versions: Policy = "latest",
        labels: Mapping[str, int] | None = None,
        poll: float = 1.0,
        grace: float = 30.0,
    ) -> None:
        with needs_extra("aiohttp", "serving"):
            import aiohttp  # noqa: F401
        with needs_extra("tensorflow-serving-api", "serving"):
            import grpc  # noqa: F401
            import tensorflow_serving.apis  # noqa: F401
        threads = os.cpu_count() or 1 if threads is None else threads
        _check(models, port=port, rest_port=rest_port)
        _check_positive(max_body=max_body, concurrency=concurrency, batch_size=batch_size, threads=threads)
        numbers = not isinstance(versions, str) and all(isinstance(one, int) for one in versions)
        if not numbers and versions not in ("latest", "all"):
            raise invalid_argument("versions", versions, "`latest`, `all`, or numbers of versions")
        for name, value in {"batch_timeout": batch_timeout, "poll": poll, "grace": grace}.items():
            if not value >= 0:
                raise invalid_argument(name, value, "a number of seconds >= 0")
        self.host = host
        self.grpc_port = port
        self.rest_port = rest_port
        self._max_body, self._concurrency, self._threads = max_body, concurrency, threads
        self._batch_size, self._batch_timeout = batch_size, batch_timeout
        self._poll, self._grace = poll, grace
        self.metrics = Metrics()
        self.models = {
            name: ModelVersions(name, base, versions, labels, self._recorder(name)) for name, base in models.items()
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _recorder(self, name: str) -> Any:
        def record(number: int, available: bool) -> None:
            if available:
                self.metrics.versions.labels(name, str(number)).set(1)
            else:
                self.metrics.versions.remove(name, str(number))

        return record

    def start(self) -> Server:
        """Loads the models and listens; returns when requests are answered.

        Raises:
            DataError: if a model cannot be loaded, or a port is taken.
        """
        if self._thread is not None:
            raise RuntimeError("The server has been started already.")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vsemb-server", daemon=True)
        self._thread.start()
        try:
            self._await(self._open())
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """Stops listening, finishes what is in flight within the grace time, and unloads the models."""
        if self._loop is None:
            return
        self._await(self._close())
        self._end_loop()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def refresh(self) -> None:
        """Looks for new and removed versions now, and returns when they are loaded and unloaded."""
        self._await(self._refresh())

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        assert self._loop is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._loop = self._thread = None

    async def _open(self) -> None:
        self._refreshing = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._runner: Any = None
        self._grpc: Any = None
        self._batcher = Batcher(
            self._batch_size,
            self._batch_timeout,
            self._threads,
            lambda model, signature, rows: self.metrics.rows.labels(model, signature).observe(rows),
        )
        self.predictor = Predictor(self.models, self._batcher, self.metrics, self._concurrency)
        try:
            # The ports first: loading takes longer, and a port that is taken should not wait for it.
            listener = self._bind_rest()
            with contextlib.closing(listener):
                self._grpc = self._bind_grpc()
                await self._refresh()
                self._require_versions()
                await self._start_rest(listener.dup())
            await self._grpc.start()
        except BaseException:
            await self._close()
            raise
        if self._poll:
            self._watcher = asyncio.create_task(self._watch())

    def _require_versions(self) -> None:
        for name, model in self.models.items():
            if not any(version.available for version in model.versions.values()):
                errors = [version.error for _, version in sorted(model.versions.items()) if version.error]
                raise DataError(errors[-1] if errors else f"{model.base} has no version to serve as {name}.")

    def _bind_rest(self) -> socket.socket:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.rest_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise DataError(_taken("rest_port", self.host, self.rest_port, error.strerror)) from error
        self.rest_port = listener.getsockname()[1]
        return listener

    async def _start_rest(self, listener: socket.socket) -> None:
        from aiohttp import web

        self._runner = web.AppRunner(
            RestApi(self.predictor, self._max_body).application(),
            access_log=None,
            logger=HTTP_LOG,
            auto_decompress=False,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=self._grace,
        )
        await self._runner.setup()
        try:
            await web.SockSite(self._runner, listener, backlog=1024).start()
        except OSError as error:
            # Between binding and listening another process may have taken the port.
            listener.close()
            raise DataError(_taken("rest_port", self.host, self.rest_port, error.strerror)) from error

    def _bind_grpc(self) -> Any:
        import grpc
        from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

        server = grpc.aio.server(
            options=[
                # Two servers on one port would share its requests.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", self._max_body),
                ("grpc.max_send_message_length", -1),
            ],
            # Questions about a model's status are answered while predictions take all of their places.
            maximum_concurrent_rpcs=self._concurrency + 16,
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(self.predictor), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(self.predictor), server)
        address = f"[{self.host}]" if ":" in self.host else self.host
        try:
            bound = server.add_insecure_port(f"{address}:{self.grpc_port}")
        except RuntimeError as error:
            raise DataError(_taken("port", self.host, self.grpc_port, None)) from error
        if not bound:
            raise DataError(_taken("port", self.host, self.grpc_port, None))
        self.grpc_port = bound
        return server

    async def _refresh(self) -> None:
        async with self._refreshing:
            for model in self.models.values():
                await model.refresh()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll)
            try:
                await self._refresh()
            except (OSError, VsembError) as error:
                LOG.error("looking for new versions failed: %s", error)

    async def _close(self) -> None:
        self.predictor.draining = True
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        stops = [] if self._runner is None else [self._runner.cleanup()]
        if self._grpc is not None:
            stops.append(self._grpc.stop(self._grace))
        await asyncio.gather(*stops)
        await asyncio.to_thread(self._batcher.close)
        for model in self.models.values():
            model.close()


def _taken(name: str, host: str, port: int, reason: str | None) -> str:
    reason = reason or "the port is taken, or the address is not this machine's"
    return f"Cannot listen on {host}:{port} (`{name}`): {reason}. Name another, or 0 for a free one."


def _check(models: Mapping[str, Any], **ports: int) -> None:
    if not models:
        raise invalid_argument("models", dict(models), "at least one model's name and directory")
    for name in models:
        if not name or set("/:") & set(name):
            raise invalid_argument("models", name, "names without `/` and `:`")
    for name, port in ports.items():
        if not 0 <= port <= 65535:
            raise invalid_argument(name, port, "a port from 0 to 65535")


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise invalid_argument(name, value, "an integer >= 1")
