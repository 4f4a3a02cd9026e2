"""The REST API of a running server: documented case -> status and body."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.asking import ask
from vsemb.serving.server import Server

MODEL = "/v1/models/everything"
OK = {"error_code": "OK", "error_message": ""}
AVAILABLE = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": OK}]}
TWO = {"signature_name": "two"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "answer"),
    [
        ("GET", MODEL, None, 200, AVAILABLE),
        ("GET", f"{MODEL}/versions/1", None, 200, AVAILABLE),
        ("GET", f"{MODEL}/labels/stable", None, 200, AVAILABLE),
        ("POST", f"{MODEL}:predict", {"instances": [1, 2, 5]}, 200, {"predictions": [2.5, 3.0, 4.5]}),
        ("POST", f"{MODEL}/versions/1:predict", {"inputs": [1, 2]}, 200, {"outputs": [2.5, 3.0]}),
        ("POST", f"{MODEL}/labels/stable:predict", {"inputs": {"x": [1]}}, 200, {"outputs": [2.5]}),
        (
            "POST",
            f"{MODEL}:predict",
            {"signature_name": "strings", "instances": ["a", {"b64": "Yg=="}]},
            200,
            {
                "predictions": [
                    {"raw_bytes": {"b64": "YQ=="}, "upper": "A"},
                    {"raw_bytes": {"b64": "Yg=="}, "upper": "B"},
                ]
            },
        ),
        (
            "POST",
            f"{MODEL}:predict",
            {**TWO, "instances": [{"a": [1, 2], "b": 3}]},
            200,
            {"predictions": [{"big": 2**53 + 3, "odd": True, "sum": 6.0}]},
        ),
        (
            "POST",
            f"{MODEL}:predict",
            {**TWO, "inputs": {"a": [[1, 2], [3, 4]], "b": [3, 4]}},
            200,
            {"outputs": {"big": [2**53 + 3, 2**53 + 4], "odd": [True, False], "sum": [6.0, 11.0]}},
        ),
        ("POST", f"{MODEL}:predict", {"signature_name": "scalar", "inputs": 4}, 200, {"outputs": 8.0}),
        ("GET", "/v1/models", None, 400, "Missing model name in request."),
        ("GET", "/v1/models/none", None, 404, "Could not find any versions of model none"),
        ("GET", f"{MODEL}/versions/7", None, 404, "Could not find version 7 of model everything"),
        ("GET", f"{MODEL}/labels/none", None, 400, "Unrecognized servable version label: none"),
        ("GET", f"{MODEL}/versions/{9**40}", None, 400, "Failed to convert version: "),
        ("GET", f"{MODEL}:predict", None, 400, f"Malformed request: GET {MODEL}:predict"),
        ("POST", MODEL, {}, 400, f"Malformed request: POST {MODEL}"),
        ("POST", f"{MODEL}:explain", {}, 400, f"Malformed request: POST {MODEL}:explain"),
        ("PUT", MODEL, {}, 405, f"Malformed request: PUT {MODEL}"),
        ("GET", "/", None, 404, "Not found: /"),
        ("GET", "/v2/health", None, 404, "Not found: /v2/health"),
        (
            "POST",
            "/v1/models/none:predict",
            {"instances": [1]},
            404,
            "Servable not found for request: Latest(none)",
        ),
        (
            "POST",
            "/v1/models/none/versions/2:predict",
            {},
            404,
            "Servable not found for request: Specific(none, 2)",
        ),
        (
            "POST",
            f"{MODEL}/versions/7:predict",
            {},
            404,
            "Servable not found for request: Specific(everything, 7)",
        ),
        ("POST", f"{MODEL}/labels/none:predict", {}, 400, "Unrecognized servable version label: none"),
        ("POST", f"{MODEL}:classify", {"examples": [{}]}, 501, "The method must be predict; got classify"),
        ("POST", f"{MODEL}:regress", {"examples": [{}]}, 501, "The method must be predict; got regress"),
        ("POST", f"{MODEL}:predict", b"{", 400, "JSON Parse error: "),
        ("POST", f"{MODEL}:predict", b"", 400, "JSON Parse error: The document is empty"),
        ("POST", f"{MODEL}:predict", {}, 400, "Missing 'inputs' or 'instances' key"),
        ("POST", f"{MODEL}:predict", {"instances": ["a"]}, 400, "is not of expected type: float"),
        (
            "POST",
            f"{MODEL}:predict",
            {"instances": [[1, 2]]},
            400,
            "Input x has shape [1, 2]; expected: float32 [?]",
        ),
        (
            "POST",
            f"{MODEL}:predict",
            {"signature_name": "none", "instances": [1]},
            400,
            'Serving signature name: "none" not found in signature def',
        ),
        (
            "POST",
            f"{MODEL}:predict",
            {**TWO, "inputs": {"a": [[1, 2]], "b": [1, 2]}},
            400,
            "input tensors must have equal 0th-dimension size",
        ),
        ("POST", f"{MODEL}:predict", {"signature_name": "picky", "instances": [-1]}, 400, "negative input"),
        (
            "POST",
            f"{MODEL}:predict",
            {"signature_name": "scalar", "instances": [1]},
            400,
            "Input x has shape [1]",
        ),
    ],
)
def test_documented_cases(server: Server, method: str, path: str, body, status: int, answer) -> None:
    got, content = ask(server.rest_port, method, path, body)
    if isinstance(answer, str):
        assert list(content) == ["error"]
        assert answer in content["error"]
    else:
        assert content == answer
    assert got == status


def test_special_numbers_are_literals_of_javascript(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    body = '{"signature_name": "reciprocal", "instances": [0.0, NaN, -Infinity]}'
    connection.request("POST", f"{MODEL}:predict", body)
    assert connection.getresponse().read() == b'{"predictions": [Infinity, NaN, -0.0]}'
    connection.close()


def test_compressed_bodies(server: Server, caplog) -> None:
    body = gzip.compress(b'{"instances": [1]}')
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    for encoding, content, status, says in (
        ("gzip", body, 200, b"[2.5]"),
        ("gzip", body[:-4], 400, b"it is incomplete"),
        ("gzip", b"no gzip", 400, b"cannot be read as gzip"),
        ("deflate", b"no deflate", 415, b"must be gzip or identity"),
        ("br", b"no brotli", 415, b"must be gzip or identity"),
        ("identity", b'{"instances": [1]}', 200, b"[2.5]"),
    ):
        # One connection for all: none of them breaks it.
        connection.request("POST", f"{MODEL}:predict", content, {"Content-Encoding": encoding})
        response = connection.getresponse()
        answer = response.read()
        assert response.status == status and says in answer
    connection.close()
    assert not caplog.records


def test_broken_http_leaves_no_traceback_in_the_log(server: Server, caplog) -> None:
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\n".encode()
    for content in (b"no HTTP\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
        with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as client:
            client.sendall(b"HEAD /v1/models/everything HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
            client.sendall(content)
            assert b" 400 " in b"".join(iter(lambda: client.recv(4096), b"")).split(b"\r\n")[0]
    assert not caplog.records


def test_a_body_that_is_not_compressed_as_it_says_is_a_bad_request(server: Server) -> None:
    status, answer = ask(server.rest_port, "POST", f"{MODEL}:predict", b"no gzip", {"Content-Encoding": "gzip"})
    assert status == 400 and "cannot be read" in answer["error"]
    # It is no larger than it may be when unpacked, either.
    bomb = gzip.compress(b" " * 2**26)
    assert ask(server.rest_port, "POST", f"{MODEL}:predict", bomb, {"Content-Encoding": "gzip"})[0] == 413
    # A byte order mark, which some editors write, is no part of the JSON.
    body = b"\xef\xbb\xbf" + json.dumps({"instances": [1]}).encode()
    assert ask(server.rest_port, "POST", f"{MODEL}:predict", body) == (200, {"predictions": [2.5]})


def test_metadata_is_the_models_own(server: Server) -> None:
    status, content = ask(server.rest_port, "GET", f"{MODEL}/metadata")
    assert status == 200
    assert content["model_spec"] == {"name": "everything", "signature_name": "", "version": "1"}
    found = content["metadata"]["signature_def"]["signature_def"]["two"]
    assert found["method_name"] == "tensorflow/serving/predict"
    assert found["inputs"]["a"] == {
        "dtype": "DT_FLOAT",
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}],
            "unknown_rank": False,
        },
        "name": "two_a:0",
    }
    assert found["outputs"]["big"]["dtype"] == "DT_INT64"
    assert ask(server.rest_port, "GET", f"{MODEL}/versions/1/metadata") == (200, content)
    assert ask(server.rest_port, "GET", f"{MODEL}/versions/2/metadata")[0] == 404


def test_the_server_describes_its_api(server: Server) -> None:
    status, found = ask(server.rest_port, "GET", "/openapi.json")
    base = "/v1/models/everything"
    assert status == 200 and list(found["paths"]) == [base, f"{base}/metadata", f"{base}:predict"]
    predict = found["paths"][f"{base}:predict"]["post"]
    requests = predict["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    forms = [(each["properties"]["signature_name"]["const"], each["required"]) for each in requests]
    # A signature of a scalar has no rows, and the default one needs no name.
    assert ("serving_default", ["instances"]) in forms and ("two", ["inputs", "signature_name"]) in forms
    assert ("scalar", ["instances", "signature_name"]) not in forms
    row = requests[forms.index(("two", ["instances", "signature_name"]))]["properties"]["instances"]["anyOf"][0][
        "items"
    ]
    limits = {"minimum": -(2**31), "maximum": 2**31 - 1}
    assert row["properties"]["b"] == {"type": "integer", **limits} and row["required"] == ["a", "b"]
    assert (row["properties"]["a"]["minItems"], row["properties"]["a"]["items"]["type"]) == (2, "number")


def test_metrics_count_answers_and_hold_no_names_of_strangers(server: Server) -> None:
    ask(server.rest_port, "POST", f"{MODEL}:predict", {"instances": [1]})
    ask(server.rest_port, "POST", "/v1/models/stranger:predict", {"instances": [1]})
    status, text = ask(server.rest_port, "GET", "/metrics")
    assert (status, text) == (200, ask(server.rest_port, "GET", "/metrics")[1])
    lines = text.decode().splitlines()
    label = 'model="everything",protocol="rest",signature="serving_default"'
    assert any(line.startswith(f'vsemb_requests_total{{code="OK",{label}}}') for line in lines)
    assert any(line.startswith('vsemb_requests_total{code="NOT_FOUND",model="",') for line in lines)
    assert any(line.startswith(f"vsemb_request_seconds_count{{{label}}}") for line in lines)
    assert 'vsemb_model_available{model="everything",version="1"} 1.0' in lines
    assert "vsemb_requests_in_flight 0.0" in lines
    assert any(line.startswith("vsemb_batch_rows_count") for line in lines)
    assert b"stranger" not in text
    assert ask(server.rest_port, "GET", "/monitoring/prometheus/metrics")[0] == 200


def test_concurrent_requests_get_their_own_answers(server: Server) -> None:
    def one(i: int) -> bool:
        if i % 10 == 0:
            return ask(server.rest_port, "POST", f"{MODEL}:predict", {"instances": ["bad"]})[0] == 400
        body = {"instances": [i, i + 1][: 1 + i % 2]}
        answer = {"predictions": [x / 2 + 2 for x in body["instances"]]}
        return ask(server.rest_port, "POST", f"{MODEL}:predict", body) == (200, answer)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(300)))


@pytest.fixture(scope="module")
def narrow(everything):
    """A server that takes bodies up to 1000 bytes."""
    with Server({"everything": everything}, port=0, rest_port=0, poll=0, max_body=1000) as server:
        yield server


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Reads an answer without waiting for the end: the server keeps a connection with an unread body for 10 seconds."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read().decode()


def test_a_large_body_is_refused_before_it_is_sent(narrow: Server) -> None:
    # Ten megabytes are announced and never sent; the answer comes all the same.
    for expect in (b"", b"Expect: 100-continue\r\n"):
        with socket.create_connection(("127.0.0.1", narrow.rest_port), timeout=60) as client:
            head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n".encode()
            client.sendall(head + expect + b"\r\n")
            status, answer = answer_of(client)
        assert status == 413 and "at most 1000 bytes" in answer


def test_a_body_that_stands_still_gives_its_place_back(server: Server, monkeypatch) -> None:
    monkeypatch.setattr("vsemb.serving.rest_api._SILENT_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
        head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{"
        connection.sendall(head.encode())
        status, answer = answer_of(connection)
    assert status == 408 and "with pauses of at most" in answer


def test_a_client_that_vanishes_is_no_failure_of_the_server(server: Server, caplog) -> None:
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{"
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
        connection.sendall(head.encode())
        while not server.predictor.bytes.used:
            time.sleep(0.005)
    while server.predictor.bytes.used:
        time.sleep(0.005)
    assert not caplog.records
    assert b'code="CANCELLED"' in ask(server.rest_port, "GET", "/metrics")[1]


def test_a_large_body_without_a_length_is_refused(narrow: Server) -> None:
    parts = (b" " * 600 for _ in range(100))
    status, answer = ask(narrow.rest_port, "POST", f"{MODEL}:predict", parts)  # type: ignore[arg-type]
    assert status == 413 and "at most 1000 bytes" in answer["error"]
    assert ask(narrow.rest_port, "POST", f"{MODEL}:predict", {"instances": [1]})[0] == 200


def test_a_client_that_waits_for_100_continue_gets_it(narrow: Server) -> None:
    body = json.dumps({"instances": [1]}).encode()
    with socket.create_connection(("127.0.0.1", narrow.rest_port), timeout=60) as client:
        client.sendall(
            f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\nConnection: close\r\n\r\n".encode()
        )
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"predictions": [2.5]}')


@pytest.mark.parametrize(
    ("named", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8501", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8501", 200),
        ("", 200),
        ("rebound.example.org", 403),
        ("rebound.example.org:8501", 403),
        ("localhost.example.org", 403),
        ("10.0.0.1", 403),
        ("[::1", 403),
    ],
)
def test_on_loopback_a_name_of_another_machine_is_refused(named: str, status: int, server: Server) -> None:
    """A web page of a stranger binds its name to 127.0.0.1, and its requests come with this name."""
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    for method, path in (("GET", MODEL), ("GET", "/metrics"), ("POST", f"{MODEL}:predict")):
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", named)
        body = b'{"instances": [1]}' if method == "POST" else b""
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        assert answer.status == status, answer.read()
        answer.read()
    connection.close()
