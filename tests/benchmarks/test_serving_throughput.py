"""Clients and rows of the load over REST, with servers that have no model."""

from __future__ import annotations

import http.server
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks import gates, processes
from tests.benchmarks.reports import rows_of
from tests.benchmarks.serving_throughput import send_all

# What `tensorflow_model_server` is asked for, answered by Python.
_MODEL_SERVER = """#!{python}
import http.server, sys
options = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
assert {{*options}} == {{"rest_api_port", "port", "model_name", "model_base_path"}} and options["model_name"] == "model"
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"state": "AVAILABLE"}}')
http.server.HTTPServer(("127.0.0.1", int(options["rest_api_port"])), Handler).serve_forever()
"""


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers a request with its body, and with status 400 for `bad`."""

    protocol_version = "HTTP/1.1"
    connections: Counter[tuple[str, int]] = Counter()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.connections[self.client_address] += 1
        self.send_response(400 if body == b"bad" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_every_request_has_its_reply_on_a_kept_connection(port: int) -> None:
    bodies = [b"one", b"bad", b"three" * 1000]
    replies, seconds = send_all(port, bodies, requests=60, clients=4)
    assert seconds > 0 and Counter(place for place, _, _ in replies) == {0: 20, 1: 20, 2: 20}
    assert all(body == bodies[place] and status == (400 if place == 1 else 200) for place, status, body in replies)
    assert len(Echo.connections) == 4


def test_the_model_server_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / processes.MODEL_SERVER
    program.write_text(_MODEL_SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with processes.model_server(tmp_path) as port:
        assert port > 0
    program.write_text(f"#!{sys.executable}\nraise SystemExit(3)\n")
    with pytest.raises(RuntimeError, match="status 3"), processes.model_server(tmp_path):
        pass


def test_serving_has_the_rows_of_its_gates() -> None:
    modes = {mode: {"requests_per_second": [1.0, rate, 9.0]} for mode, rate in (("merged", 6.0), ("single", 4.0))}
    clients = {count: {"vsemb serve": [1.0, 3.0, 9.0], "plain aiohttp": [1.0, 2.0, 9.0]} for count in ("8", "64")}
    rest = {"requests": 10, "clients": clients, "wrong": {}, "left_out": {"tensorflow_model_server": "not on PATH"}}
    found = {
        each["name"]: each for each in rows_of("serving", {"load": {"requests": 10, "modes": modes}, "rest": rest})
    }
    assert found["requests/s, merged / unmerged"]["ratio"] == 1.5
    for count in clients:
        assert found[f"requests/s, {count} clients / plain aiohttp"]["ratio"] == 1.5
        assert found[f"requests/s, {count} clients / tensorflow_model_server"]["reason"] == "not on PATH"
    assert {gate.row for gate in gates.GATES if gate.part == "serving"} <= {*found}
