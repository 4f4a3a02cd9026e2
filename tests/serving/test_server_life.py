"""Limits, deadlines, starting and stopping, with a model that waits until it is told to go on."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.serving.asking import ask
from vsemb.errors import DataError, InvalidArgumentError, MissingExtraError
from vsemb.serving.models import LoadedModel
from vsemb.serving.server import Server

PREDICT = "/v1/models/everything:predict"


class Gate:
    """Makes every batch wait until `open` is set, and counts what has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun, self.batches = threading.Event(), threading.Semaphore(0), 0
        real = LoadedModel.run

        def run(model: LoadedModel, signature: str, inputs: dict) -> dict:
            self.batches += 1
            self.begun.release()
            assert self.open.wait(60)
            return real(model, signature, inputs)

        monkeypatch.setattr(LoadedModel, "run", run)

    def wait_begun(self) -> None:
        assert self.begun.acquire(timeout=60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def serving(base: Path, **options) -> Server:
    return Server({"everything": base}, **{"port": 0, "rest_port": 0, "poll": 0, **options})


def post(server: Server, value: float = 1) -> tuple[int, dict]:
    return ask(server.rest_port, "POST", PREDICT, {"instances": [value]})


def request() -> predict_pb2.PredictRequest:
    made = predict_pb2.PredictRequest()
    made.model_spec.name = "everything"
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(1, np.float32)))
    return made


def stub(channel: grpc.Channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_beyond_the_limit_requests_are_refused_at_once(everything: Path, gate: Gate) -> None:
    with (
        serving(everything, concurrency=1) as server,
        ThreadPoolExecutor(1) as pool,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        first = pool.submit(post, server)
        gate.wait_begun()
        assert post(server) == (
            503,
            {"error": "The server is handling 1 requests, its maximum. Try again."},
        )
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).Predict(request(), timeout=60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        # What costs nothing is answered all the same.
        metrics = ask(server.rest_port, "GET", "/metrics")[1].decode()
        assert "vsemb_requests_in_flight 1.0" in metrics
        gate.open.set()
        assert first.result(60) == (200, {"predictions": [2.5]})
        assert post(server)[0] == 200


def test_a_deadline_takes_waiting_work_away(everything: Path, gate: Gate) -> None:
    with (
        serving(everything, threads=1) as server,
        ThreadPoolExecutor(1) as pool,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        first = pool.submit(post, server)
        gate.wait_begun()
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).Predict(request(), timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # A REST client that hangs up is the same.
        body = b'{"instances": [1]}'
        with socket.create_connection(("127.0.0.1", server.rest_port)) as client:
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        _until(lambda: "vsemb_requests_in_flight 1.0" in ask(server.rest_port, "GET", "/metrics")[1].decode())
        gate.open.set()
        assert first.result(60)[0] == 200
        assert post(server)[0] == 200
        assert gate.batches == 2


def _until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_stopping_finishes_what_is_in_flight_and_refuses_the_rest(everything: Path, gate: Gate) -> None:
    server = serving(everything).start()
    with ThreadPoolExecutor(2) as pool, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        running = [pool.submit(post, server)]
        gate.wait_begun()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        _until(lambda: server.predictor.draining)
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).Predict(request(), timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        gate.open.set()
        assert running[0].result(60) == (200, {"predictions": [2.5]})
        stopping.join(60)
        assert not stopping.is_alive()
    with pytest.raises(OSError):
        post(server)


def test_stopping_waits_no_longer_than_the_grace_time(everything: Path, gate: Gate) -> None:
    server = serving(everything, grace=0.1).start()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, server)
        gate.wait_begun()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        # The client learns that it gets no answer before the model has finished.
        with pytest.raises(OSError):
            running.result(60)
        gate.open.set()
        stopping.join(60)
        assert not stopping.is_alive()


def test_two_servers_in_one_process(everything: Path) -> None:
    with serving(everything) as one, serving(everything) as other:
        assert one.rest_port != other.rest_port and one.port != other.port
        post(one)
        assert post(other)[0] == 200
        labels = 'code="OK",model="everything",protocol="rest",signature="serving_default"'
        count = f"vsemb_requests_total{{{labels}}} 1.0"
        for server in (one, other):
            assert count in ask(server.rest_port, "GET", "/metrics")[1].decode()


@pytest.mark.parametrize("which", ["port", "rest_port"])
def test_a_port_in_use(everything: Path, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(DataError, match=rf"Cannot listen on 127.0.0.1:{number} \(`{which}`\)"):
            serving(everything, **{which: number}).start()


def test_a_server_may_be_started_again(everything: Path) -> None:
    server = serving(everything)
    for _ in range(2):
        with server:
            assert post(server)[0] == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 65536}, "`port`"),
        ({"concurrency": 0}, "`concurrency`"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"threads": 0}, "`threads`"),
        ({"max_body": 0}, "`max_body`"),
        ({"poll": -1}, "`poll`"),
        ({"batch_timeout": float("nan")}, "`batch_timeout`"),
        ({"versions": "newest"}, "`versions`"),
        ({"models": {}}, "`models`"),
        ({"models": {"a/b": "."}}, "`models`"),
    ],
)
def test_values_out_of_range(everything: Path, options: dict, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Server(**{"models": {"everything": everything}, **options})


@pytest.mark.parametrize("package", ["aiohttp", "tensorflow_serving", "prometheus_client"])
def test_a_missing_package_names_the_extra(monkeypatch, package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "vsemb.serving.server")
    with pytest.raises(MissingExtraError, match=r"vsemb\[serving\]"):
        importlib.import_module("vsemb.serving.server")


def test_the_room_is_imported_without_tensorflow() -> None:
    code = "import sys, vsemb.serving; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
