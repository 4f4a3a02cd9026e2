"""Connections above the limit, and a log that stays short when descriptors are missing."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.raising import raises_argument
from tests.serving.asking import ask
from vsemb.serving.connections import LoopErrors
from vsemb.serving.server import Server

MODEL = "/v1/models/everything"


@pytest.fixture(scope="module")
def narrow(everything: Path) -> Iterator[Server]:
    """A server of three connections that web pages may call."""
    with Server({"everything": everything}, port=0, rest_port=0, poll=0, max_connections=3, cors=True) as server:
        yield server


def connected(stack: contextlib.ExitStack, port: int, number: int) -> list[socket.socket]:
    return [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(number)]


def settled(port: int, status: int) -> None:
    """Waits until the server has noticed opened or closed connections."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(port, "GET", MODEL)[0] == status:
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_above_the_limit_health_and_metrics_are_answered(narrow: Server, caplog: pytest.LogCaptureFixture) -> None:
    port = narrow.rest_port
    with contextlib.ExitStack() as stack, caplog.at_level(logging.WARNING, "vsemb.serving"):
        connected(stack, port, 3)
        settled(port, 503)
        status, answer = ask(port, "POST", f"{MODEL}:predict", {"instances": [1]})
        assert status == 503 and "maximum of connections" in answer["error"]
        assert ask(port, "GET", "/health") == (200, {"status": "SERVING"})
        assert b"vsemb_requests_in_flight" in ask(port, "GET", "/metrics")[1]
        # Above the room, a connection is closed at once.
        connected(stack, port, 16)
        with pytest.raises((OSError, http.client.HTTPException)):
            for _ in range(17):
                ask(port, "GET", "/health")
        # There is one line for all.
        assert len([record for record in caplog.records if "the maximum" in record.getMessage()]) <= 1
    settled(port, 200)
    assert ask(port, "POST", f"{MODEL}:predict", {"instances": [1]}) == (200, {"predictions": [2.5]})


def test_above_the_limit_connections_over_grpc_are_closed(narrow: Server) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "everything"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(1, np.float32)))
    # Otherwise the channels share one connection.
    options = [("grpc.use_local_subchannel_pool", 1)]

    def predict(channel: grpc.Channel, timeout: float) -> list[float]:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return list(stub.Predict(request, timeout=timeout).outputs["y"].float_val)

    with contextlib.ExitStack() as stack:
        address = f"127.0.0.1:{narrow.port}"
        channels = [stack.enter_context(grpc.insecure_channel(address, options)) for _ in range(4)]
        for channel in channels[:3]:
            assert predict(channel, 60) == [2.5]
        with pytest.raises(grpc.RpcError):
            predict(channels[3], 1)
        assert predict(channels[0], 60) == [2.5]
        channels[1].close()
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(grpc.RpcError):
                assert predict(channels[3], 2) == [2.5]
                break
            assert time.monotonic() < deadline


def test_web_pages_may_call_only_if_allowed(narrow: Server, server: Server) -> None:
    for served, allowed in ((narrow, True), (server, False)):
        for method, path, body in (
            ("OPTIONS", f"{MODEL}:predict", None),
            ("POST", f"{MODEL}:predict", '{"instances": [1]}'),
            ("POST", f"{MODEL}:predict", "{"),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", served.rest_port, timeout=60)
            connection.request(method, path, body, {"Origin": "http://example.org"})
            response = connection.getresponse()
            response.read()
            connection.close()
            assert (response.getheader("Access-Control-Allow-Origin") == "*") == allowed
            assert ("Content-Type" in response.getheader("Access-Control-Allow-Headers", "")) == allowed
            if method == "OPTIONS":
                assert response.status == (200 if allowed else 405)


def test_a_limit_above_the_open_files_of_the_process_is_refused(everything: Path) -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        pytest.skip("no limit of open files")
    with raises_argument("max_connections"):
        Server({"everything": everything}, max_connections=files)


def test_accept_without_descriptors_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopErrors())
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.ExitStack() as stack:
            serving = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog=1024)
            stack.callback(serving.close)
            stack.enter_context(socket.create_connection(serving.sockets[0].getsockname()[:2]))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            # No further file can be opened.
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            await asyncio.sleep(0.1)
        loop.call_exception_handler({"message": "something else", "exception": ValueError("other")})

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    failed = [record for record in caplog.records if "cannot be accepted" in record.getMessage()]
    assert len(failed) == 1 and "something else" in caplog.text
