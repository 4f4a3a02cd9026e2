"""Processes are measured until they are ready; TensorFlow is not started here."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import startup
from tests.benchmarks.processes import answers, free_port

# Refuses the first request, as a server that has not loaded its model.
_SERVER = """
import http.server, itertools, sys
count = itertools.count()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models/model" and next(count) else 404)
        self.end_headers()
        self.wfile.write(b'{"state": "AVAILABLE"}')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_process_is_measured_to_its_first_result() -> None:
    script = "import time; print('rank'); print('  1  0.5'); time.sleep(60)"
    assert startup.started(("-c", script), startup.has_result) < 30


@pytest.mark.parametrize("ready", [startup.ended, startup.has_result])
def test_a_process_that_fails_is_no_measurement(ready: startup.Ready) -> None:
    with pytest.raises(RuntimeError, match="no luck"):
        startup.started(("-c", "import sys; sys.exit('no luck')"), ready)


def test_a_server_is_measured_to_its_first_answer() -> None:
    port = free_port()
    assert startup.started(("-c", _SERVER, str(port)), partial(answers, port)) < 30


def test_a_server_that_ends_is_not_ready() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        assert not answers(free_port(), process)


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def started(arguments: tuple[str, ...], ready: startup.Ready = startup.ended) -> float:
        asked.append(arguments)
        tensorflow = arguments[0] == "-c" and "import tensorflow" in arguments[1]
        return 4.0 if tensorflow else 0.1 if ready is startup.ended else 5.0

    monkeypatch.setattr(startup, "started", started)
    ratios = {each["name"]: each["ratio"] for each in startup.measure(Path("model"), Path("run"), 1)}
    assert ratios["vsemb recipes, seconds"] == 0.1
    assert ratios["vsemb search, first result / import tensorflow"] == 1.25
    # The check that TensorFlow is not loaded, then two rounds.
    assert len(asked) == 1 + 2 * 7
