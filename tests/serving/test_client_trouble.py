"""The client and servers that fail: scripted answers, silence, closed ports, statuses that pass."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
)

from tests.serving.rpc import rpc_server
from vsemb.serving.client import Client
from vsemb.serving.transports import ServingError, attempted

PROTOCOLS = ("http", "grpc")
METADATA = {
    "model_spec": {"name": "scenes", "signature_name": "", "version": "1"},
    "metadata": {
        "signature_def": {
            "signature_def": {
                "encode_text": {
                    "inputs": {
                        "text": {
                            "dtype": "DT_STRING",
                            "tensor_shape": {"dim": [{"size": "-1"}], "unknown_rank": False},
                        }
                    },
                    "outputs": {
                        "embedding": {
                            "dtype": "DT_FLOAT",
                            "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]},
                        },
                        "valid": {"dtype": "DT_BOOL", "tensor_shape": {"dim": [{"size": "-1"}]}},
                    },
                },
                "__saved_model_init_op": {"inputs": {}, "outputs": {"op": {"dtype": "DT_INVALID"}}},
            }
        }
    },
}
GOOD = {"outputs": {"embedding": [[0.1, 1]], "valid": [True]}}


class Scripted:
    """An HTTP server whose answers to :predict are (status, body) or functions of the handler, in turn."""

    def __init__(self, *answers) -> None:
        self.answers, self.bodies = list(answers), []
        script = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.send(200, json.dumps(METADATA).encode())

            def do_POST(self) -> None:
                script.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer = script.answers.pop(0)
                if callable(answer):
                    answer(self)
                else:
                    status, body = answer
                    self.send(status, body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *arguments) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Scripted:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


def hang_up(handler) -> None:
    handler.close_connection = True


def break_off(handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"outputs"')
    handler.close_connection = True


def test_what_is_sent_is_columns_in_base64():
    with Scripted((200, GOOD)) as server, Client(server.url, "scenes") as client:
        found = client.encode_text([b"\xffa"])
    assert server.bodies == [{"signature_name": "encode_text", "inputs": {"text": [{"b64": "/2E="}]}}]
    assert found.embedding.dtype == np.float32 and found.embedding.tolist() == [[np.float32(0.1), 1.0]]
    assert list(client.signatures()) == ["encode_text"]


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (
            400,
            {"error": "JSON Parse\n error"},
            "INVALID_ARGUMENT",
            "HTTP 400 INVALID_ARGUMENT: JSON Parse error",
        ),
        (404, {"error": "Servable not found"}, "NOT_FOUND", "Servable not found"),
        (413, b"<html>413 Request Entity Too Large</html>", "RESOURCE_EXHAUSTED", "Too Large"),
        (429, {"error": "busy"}, "RESOURCE_EXHAUSTED", "busy"),
        (500, b"", "INTERNAL", "HTTP 500 INTERNAL: "),
        (504, {"error": "Deadline"}, "DEADLINE_EXCEEDED", "Deadline"),
        (418, b"", "UNKNOWN", "418"),
        (302, b"", "UNKNOWN", "302"),
        (200, b"<html>hello</html>", "UNKNOWN", "must follow TensorFlow Serving's REST API"),
        (200, [1], "UNKNOWN", "must follow TensorFlow Serving's REST API"),
        (200, {"outputs": [1]}, "UNKNOWN", "outputs are missing"),
        (200, {"outputs": {"embedding": [[1, 2]]}}, "UNKNOWN", "outputs are missing"),
        (200, {"outputs": {"embedding": [["a", "b"]], "valid": [True]}}, "UNKNOWN", "cannot be read"),
        (200, {"outputs": {"embedding": [[1, 2], [3]], "valid": [True]}}, "UNKNOWN", "cannot be read"),
        (200, {"outputs": {"embedding": [[1, 2]], "valid": None}}, "UNKNOWN", "cannot be read"),
    ],
)
def test_an_answer_that_is_no_good_is_told_at_once(status, body, code, says):
    with (
        Scripted((status, body)) as server,
        Client(server.url, "scenes") as client,
        pytest.raises(ServingError, match=says) as raised,
    ):
        client.encode_text(["a"])
    assert raised.value.code == code and raised.value.http_status == status and len(server.bodies) == 1
    assert "\n" not in str(raised.value) and server.url in str(raised.value)


@pytest.mark.parametrize(
    "trouble",
    [(503, {"error": "busy"}), (502, b""), hang_up, break_off],
    ids=["503", "502", "hang_up", "break_off"],
)
def test_trouble_that_passes_is_tried_again(trouble):
    with Scripted(trouble, trouble, (200, GOOD)) as server, Client(server.url, "scenes") as client:
        assert client.encode_text(["a"]).valid.tolist() == [True]
    assert len(server.bodies) == 3


def test_retries_end():
    busy = (503, {"error": "busy"})
    with (
        Scripted(busy, busy, (200, GOOD)) as server,
        Client(server.url, "scenes", retries=1) as client,
        pytest.raises(ServingError, match="HTTP 503 UNAVAILABLE: busy"),
    ):
        client.encode_text(["a"])
    assert len(server.bodies) == 2


def test_an_answer_that_comes_too_late():
    release = threading.Event()
    with (
        Scripted(lambda handler: release.wait(30)) as server,
        Client(server.url, "scenes", timeout=0.2) as client,
    ):
        client.signatures()
        begun = time.monotonic()
        with pytest.raises(ServingError, match="did not answer within 0.2 seconds") as raised:
            client.encode_text(["a"])
        assert time.monotonic() - begun < 10
        release.set()
    assert raised.value.code == "DEADLINE_EXCEEDED" and len(server.bodies) == 1


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_server(protocol):
    with (
        Client(f"{protocol}://127.0.0.1:{closed_port()}", "scenes", retries=1) as client,
        pytest.raises(ServingError, match="No server answers at .*refused.*vsemb serve") as raised,
    ):
        client.encode_text(["a"])
    assert raised.value.code == "UNAVAILABLE" and raised.value.http_status is None
    assert "\n" not in str(raised.value)


def test_the_port_of_the_other_api_is_named():
    server, url = rpc_server()
    with Scripted() as rest:
        addresses = [each.partition("://")[2] for each in (url, rest.url)]
        for asked, address, other in zip(PROTOCOLS, addresses, reversed(PROTOCOLS), strict=True):
            with Client(f"{asked}://{address}", "scenes", retries=0) as client, pytest.raises(ServingError) as raised:
                client.status()
            assert f"{other}://{address}" in str(raised.value) and raised.value.code == "UNAVAILABLE"
    server.stop(None)


def test_a_port_that_speaks_something_else():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with (
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}", "scenes", retries=0) as client,
            pytest.raises(ServingError, match="No server answers at"),
        ):
            client.status()
        thread.join(10)


def test_an_answer_that_never_ends_ends_with_the_timeout():
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        with listener, listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            # Each part comes in time; the client hangs up.
            while True:
                connection.sendall(b" ")
                time.sleep(0.01)

    thread = threading.Thread(target=drip)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Client(url, "m", timeout=0.2) as client, pytest.raises(ServingError) as caught:
        client.status()
    assert caught.value.code == "DEADLINE_EXCEEDED"
    thread.join(60)
    assert not thread.is_alive()


def test_pauses_grow_and_end_with_the_timeout(monkeypatch):
    clock = [0.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    def attempt(seconds: float) -> None:
        left.append(seconds)
        clock[0] += min(0.1, seconds)
        raise ServingError("UNAVAILABLE", "busy")

    left: list[float] = []
    monkeypatch.setattr("vsemb.serving.transports.time", SimpleNamespace(sleep=pause, monotonic=lambda: clock[0]))
    with pytest.raises(ServingError, match="busy"):
        attempted(attempt, 5.0, 100)
    # An attempt has a millisecond at least.
    assert clock[0] <= 5.001 and len(pauses) >= 4 and pauses[2] > pauses[0]
    assert left[0] == 5.0 and all(a > b for a, b in zip(left, left[1:], strict=False))


class States(model_service_pb2_grpc.ModelServiceServicer):
    """Aborts with each of some codes, and then answers."""

    def __init__(self, *codes: grpc.StatusCode) -> None:
        self.codes, self.calls = list(codes), 0

    def GetModelStatus(self, request, context):
        self.calls += 1
        if self.codes:
            context.abort(self.codes.pop(0), f"not for {request.model_spec.name}\nat all")
        answer = get_model_status_pb2.GetModelStatusResponse()
        entry = answer.model_version_status.add(version=7, state=get_model_status_pb2.ModelVersionStatus.END)
        entry.status.error_code, entry.status.error_message = 3, "broken"
        return answer


def states_of(*codes: grpc.StatusCode, **options):
    service = States(*codes)
    server, url = rpc_server((model_service_pb2_grpc.add_ModelServiceServicer_to_server, service))
    try:
        with Client(url, "scenes", **options) as client:
            return service, client.status()
    except ServingError as error:
        return service, error
    finally:
        server.stop(None)


def test_grpc_tries_again_what_passes():
    unavailable = grpc.StatusCode.UNAVAILABLE
    service, states = states_of(unavailable, unavailable)
    assert service.calls == 3
    assert [(state.version, state.state, state.error_code, state.error_message) for state in states] == [
        (7, "END", "INVALID_ARGUMENT", "broken")
    ]
    service, error = states_of(unavailable, unavailable, retries=1)
    assert service.calls == 2 and "answered UNAVAILABLE: not for scenes at all" in str(error)


def test_grpc_errors_have_the_servers_words():
    for code in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL):
        service, error = states_of(code)
        assert service.calls == 1 and error.code == code.name and error.http_status is None
        assert error.detail == "not for scenes at all" and "\n" not in str(error)


def test_rest_needs_no_tensorflow():
    code = (
        "import sys\n"
        "from vsemb.serving import Client\n"
        "from vsemb.serving.transports import ServingError\n"
        f"client = Client('http://127.0.0.1:{closed_port()}', 'scenes', retries=0)\n"
        "try:\n    client.encode_text(['a'])\n"
        "except ServingError:\n    print(sorted({'tensorflow', 'keras', 'grpc'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]", done.stderr
