"""Server of SavedModels in this process, with TensorFlow Serving's gRPC and REST API.

Raises:
    MissingExtraError: on import, if the extra `serving` is not installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from vsemb.console import SafeStream
from vsemb.errors import DataError, VsembError, invalid_argument, needs_extra, reason_of
from vsemb.exporting.contract import Contract, curl_command, version_contract_path
from vsemb.files import read_bytes
from vsemb.image.decode import MAX_PIXELS
from vsemb.parts import Bytes, Count, NonNegative, Port, require_fields

with needs_extra("aiohttp", "serving"):
    import aiohttp.web
with needs_extra("prometheus-client", "serving"):
    import prometheus_client  # noqa: F401
# Suppress gRPC's message about a port in use, since vsemb raises its own error.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
with needs_extra("tensorflow-serving-api", "serving"):
    import grpc
    from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from vsemb.serving.access import OPEN, TOKEN, Access
from vsemb.serving.batching import Batcher
from vsemb.serving.budget import Budget
from vsemb.serving.connections import LimitedSite, LoopErrors
from vsemb.serving.grpc_api import OTHER_CALLS, GrpcApi, Guard
from vsemb.serving.models import DEFAULT_SIGNATURE, LOG, LoadedModel, LoadedSignature, ModelVersions, Policy
from vsemb.serving.request_handler import Metrics, Predictor
from vsemb.serving.rest_api import HTTP_LOG, RestApi

# Maximum seconds until the header of a request arrives, also on a persistent connection. nginx closes connections after
# 60, and should be the first to close.
_IDLE_SECONDS = 75

# Further connections over REST, for health and metrics, and the maximum seconds until their header arrives.
_ROOM, _ROOM_SECONDS = 16, 5

# Descriptors of a server besides its connections: libraries, models, and those of a loading version.
_OTHER_FILES = 100


@dataclass(eq=False, repr=False)
class Server:
    """Server of models over gRPC and REST, in its own thread.

    Args:
        models: name -> directory with the model's versions, e.g. `{"pets": "savedmodels/pets"}`.
        host: address to listen on.
        port: port of gRPC; 0 for a free one.
        rest_port: port of REST; 0 for a free one.
        max_body: maximum bytes per request.
        max_rows: maximum rows per request.
        max_bytes: maximum bytes of all requests that are read or answered, and of all answers; more wait.
        max_pixels: maximum pixels of the JPEG and PNG images that are decoded at once, see `Batcher`; more wait.
        max_connections: maximum number of connections over REST, and over gRPC. More are closed; over REST, 16 more are
            answered about health and metrics.
        concurrency: maximum number of requests in flight; more are refused.
        batch_size: maximum rows of a merged batch; 1 disables merging.
        batch_timeout: maximum seconds that a request waits for others; see `Batcher`.
        threads: number of batches that run at once; None for one per core.
        versions: `latest`, `all`, or version numbers.
        labels: label -> version, e.g. `{"stable": 1}`; labelled versions are always served.
        poll: seconds between checks for new versions; 0 to disable them.
        grace: seconds that `stop` waits for requests in flight.
        cors: whether web pages of any origin may call the REST API.
        access: token, TLS, and whether other machines may call without a token.

    Raises:
        InvalidArgumentError: for an argument out of range, or an address other than loopback without a token.
        DataError: if a model's directory is missing or holds no version.

    Example:

        with Server({"pets": "savedmodels/pets"}, port=0, rest_port=0) as server:
            print(f"http://127.0.0.1:{server.rest_port}/v1/models/pets")
    """

    models: Mapping[str, str | os.PathLike[str]]
    _: KW_ONLY
    host: str = "127.0.0.1"
    port: Port = 8500
    rest_port: Port = 8501
    max_body: Bytes = 32 * 2**20
    max_rows: Count = 4096
    max_bytes: Bytes = 128 * 2**20
    max_pixels: Count = 2 * MAX_PIXELS
    max_connections: Count = 400
    concurrency: Count = 256
    batch_size: Count = 64
    batch_timeout: NonNegative = 0.001
    threads: Count | None = None
    versions: Policy = "latest"
    labels: Mapping[str, int] = field(default_factory=dict)
    poll: NonNegative = 1.0
    grace: NonNegative = 30.0
    cors: bool = False
    access: Access = OPEN

    def __post_init__(self) -> None:
        require_fields(self)
        self.access.require_for(self.host)
        if not self.models:
            raise invalid_argument("models", dict(self.models), "the name and directory of at least one model")
        for name in self.models:
            if not name or set("/:") & set(name):
                raise invalid_argument("models", name, "names without `/` and `:`")
        needed = 2 * self.max_connections + _ROOM + _OTHER_FILES
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY and needed > files:
            most = max(1, (files - _ROOM - _OTHER_FILES) // 2)
            fix = f"Allow {needed} open files with `ulimit -n`."
            raise invalid_argument(
                "max_connections", self.max_connections, f"at most {most} with {files} open files", fix
            )
        numbers = not isinstance(self.versions, str) and all(isinstance(one, int) for one in self.versions)
        if not numbers and self.versions not in ("latest", "all"):
            raise invalid_argument("versions", self.versions, "`latest`, `all`, or version numbers")
        given = self.models.items()
        self.served = {name: ModelVersions(name, Path(base), self.versions, self.labels) for name, base in given}
        self.metrics = Metrics(self.served)
        self._thread: threading.Thread | None = None

    def start(self) -> Server:
        """Load the models and listen; returns when the server is ready.

        Raises:
            DataError: if a model cannot be loaded or a port is in use.
        """
        if self._thread is not None:
            raise RuntimeError("The server is already running. Call `stop` first.")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="vsemb-server", daemon=True)
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop listening, finish requests in flight within the grace time, and unload the models."""
        if self._thread is None:
            return
        # The loop is closed if `start` failed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def refresh(self) -> None:
        """Check for new and removed versions now; returns when they are loaded and unloaded."""
        asyncio.run_coroutine_threadsafe(self._refresh(), self._loop).result()

    def _run(self, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        """Serve until `stop` is called; `started` completes when the server is ready."""
        self._loop, self._stopping, self._refreshing = asyncio.get_running_loop(), asyncio.Event(), asyncio.Lock()
        batcher = Batcher(
            self.batch_size,
            self.batch_timeout,
            self.threads or os.cpu_count() or 1,
            self.max_pixels,
            lambda model, signature, rows: self.metrics.rows.labels(model, signature).observe(rows),
        )
        bytes, answers = Budget(self.max_bytes), Budget(self.max_bytes)
        self.predictor = Predictor(self.served, batcher, self.metrics, self.concurrency, self.max_rows, bytes, answers)
        self._loop.set_exception_handler(LoopErrors())
        rest = RestApi(self.predictor, self.max_body, self.access, self.host, self.cors)
        settings: dict[str, Any] = {
            "access_log": None,
            "logger": HTTP_LOG,
            "auto_decompress": False,
            "handler_cancellation": True,
        }
        runner = aiohttp.web.AppRunner(
            rest.application(),
            handle_signals=False,
            keepalive_timeout=_IDLE_SECONDS,
            shutdown_timeout=self.grace,
            **settings,
        )
        room = aiohttp.web.Server(rest.answer_in_room, keepalive_timeout=_ROOM_SECONDS, **settings)
        rpc = self._grpc_server()
        watcher = None
        try:
            # Open ports first, so that a port in use is reported before models are loaded, which is slow.
            with self._bind_rest() as listener:
                self._bind_grpc(rpc)
                await self._refresh()
                for name, model in self.served.items():
                    if not model.available:
                        errors = [version.error for _, version in sorted(model.versions.items()) if version.error]
                        raise DataError(
                            errors[-1] if errors else f"{model.base} must hold a version to serve as {name}."
                        )
                await runner.setup()
                site = LimitedSite(runner, room, self.max_connections, _ROOM, listener.dup(), self.access.ssl_context())
                await site.start()
            await rpc.start()
            if self.poll:
                watcher = asyncio.create_task(self._watch())
            started.set_result(None)
            await self._stopping.wait()
        finally:
            self.predictor.draining = True
            if watcher is not None:
                watcher.cancel()
            await asyncio.gather(runner.cleanup(), room.shutdown(0), rpc.stop(self.grace))
            await asyncio.to_thread(batcher.close)
            for model in self.served.values():
                model.close()

    def _bind_rest(self) -> socket.socket:
        try:
            family, *_, address = socket.getaddrinfo(
                self.host, self.rest_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.create_server(address, family=family, dualstack_ipv6=family == socket.AF_INET6)
        except OSError as error:
            raise self._taken("rest_port", self.rest_port, reason_of(error)) from error
        self.rest_port = listener.getsockname()[1]
        return listener

    def _grpc_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=[Guard(self.access, self.predictor.bytes, self.max_body, self.max_rows)],
            options=[
                # Otherwise two servers could share one port.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", self.max_body),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_allowed_incoming_connections", self.max_connections),
                ("grpc.max_connection_idle_ms", 1000 * _IDLE_SECONDS),
                ("grpc.server_handshake_timeout_ms", 1000 * _IDLE_SECONDS),
            ],
            # Separate slots, so that status requests are answered while predictions use all of theirs.
            maximum_concurrent_rpcs=self.concurrency + OTHER_CALLS,
        )
        api = GrpcApi(self.predictor)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(api, server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(api, server)
        return server

    def _bind_grpc(self, server: grpc.aio.Server) -> None:
        address = f"[{self.host}]" if ":" in self.host else self.host
        try:
            if self.access.tls_cert is None or self.access.tls_key is None:
                self.port = server.add_insecure_port(f"{address}:{self.port}")
            else:
                pair = read_bytes(self.access.tls_key), read_bytes(self.access.tls_cert)
                self.port = server.add_secure_port(f"{address}:{self.port}", grpc.ssl_server_credentials([pair]))
        except RuntimeError as error:
            raise self._taken("port", self.port) from error

    def _taken(self, name: str, port: int, reason: str | None = None) -> DataError:
        # `create_server` appends the address to its message.
        reason = (reason or "the port is in use, or the address is not local").partition(" (while")[0]
        return DataError(
            f"Cannot listen on {self.host}:{port} (`{name}`): {reason}. Choose another port, or 0 for a free one."
        )

    async def _refresh(self) -> None:
        async with self._refreshing:
            for model in self.served.values():
                await model.refresh()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.poll)
            try:
                await self._refresh()
            except (OSError, VsembError) as error:
                LOG.error("Checking for new versions failed: %s", error)


def served_models(
    directory: str | os.PathLike[str] | None, named: Mapping[str, str | os.PathLike[str]]
) -> dict[str, str | os.PathLike[str]]:
    """Return name -> directory of all models.

    Args:
        directory: directory of a model, served under its own name; None for none.
        named: further models.

    Raises:
        InvalidArgumentError: for no model, or a duplicate name.
    """
    models = dict(named)
    if directory is not None:
        name = Path(os.path.abspath(directory)).name
        if name in models:
            raise invalid_argument("model", name, "another name than that of the directory")
        models = {name: directory, **models}
    if not models:
        raise invalid_argument("directory", None, "the directory of a model; or name models, as `model`")
    return models


def serve_until_stopped(server: Server) -> None:
    """Start a server, print its addresses and example commands, and stop it on SIGTERM or SIGINT.

    A second signal ends the process at once. Call this from the main thread.

    Raises:
        DataError: as `Server.start`.
    """
    stop = threading.Event()
    handled = (signal.SIGTERM, signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)
        stop.set()

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=SafeStream(sys.stderr))
    before = {one: signal.signal(one, ask) for one in handled}
    # Libraries stay until the end; without them, a collection after an unload is short.
    gc.collect()
    gc.freeze()
    try:
        with server:
            print(_greeting(server), flush=True)
            stop.wait()
            print("stopping", flush=True)
    finally:
        gc.unfreeze()
        for one, handler in before.items():
            signal.signal(one, handler)


def _greeting(server: Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    rest = f"{'https' if server.access.encrypted else 'http'}://{host}:{server.rest_port}"
    curl = f'curl -H "Authorization: Bearer ${TOKEN}"' if server.access.token else "curl"
    lines = [f"gRPC  {host}:{server.port}", f"REST  {rest}"]
    for name, versions in server.served.items():
        lines.append(f"model {name}, version {', '.join(map(str, versions.available))}")
    for name, versions in server.served.items():
        with versions.lease() as (_, model):
            lines += [f"\n{command}" for command in example_commands(model, f"{rest}/v1/models/{name}", curl)]
    return "\n".join(lines)


def example_commands(model: LoadedModel, url: str, curl: str = "curl") -> list[str]:
    """Return a curl command per signature; `serving_default` only if the same signature has no other name.

    Examples come from the model's contract or, without one, from the types of the inputs.

    Args:
        model: the model.
        url: address of the model, `http://HOST:PORT/v1/models/NAME`.
        curl: the program with its options.
    """
    path = version_contract_path(model.path)
    examples: Mapping[str, Mapping[str, Any]] = {}
    if path.is_file():
        with contextlib.suppress(DataError):
            examples = Contract.read(path).examples
    names = [name for name in sorted(model.signatures) if name != DEFAULT_SIGNATURE] or [DEFAULT_SIGNATURE]
    return [curl_command(url, name, examples.get(name) or _example(model.signatures[name]), curl) for name in names]


def _example(signature: LoadedSignature) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, spec in signature.inputs.items():
        row = [] if spec.shape.rank is None else [1 if size is None else size for size in spec.shape[1:]]
        text = "a dog running on a beach"
        one = text if spec.dtype.name == "string" else spec.dtype.as_numpy_dtype(1).item()
        values[key] = np.full(row, one, dtype=object).tolist()
        if key.endswith("_bytes") and values[key] == text:
            values[key] = {"b64": "photo.jpg"}
    return values
