"""Fixtures: the files that deploy a model, parsed, and a small server that has a state."""

from __future__ import annotations

import http.server
import threading
from typing import Any

import pytest
import yaml

from tests.savedmodels.files import (
    text,
)


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load(text("compose.yaml"))


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict]:
    """The manifests by kind, each of which there is once."""
    found = list(yaml.safe_load_all(text("kubernetes.yaml")))
    kinds = [manifest["kind"] for manifest in found]
    assert len(set(kinds)) == len(kinds)
    return dict(zip(kinds, found, strict=True))


@pytest.fixture(scope="module")
def containers(manifests) -> dict[str, dict]:
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    return {container["name"]: container for container in pod["containers"]}


class Status(http.server.BaseHTTPRequestHandler):
    """Answers as TensorFlow Serving does, with the state that the model's name says."""

    def do_GET(self) -> None:
        state = self.path.removeprefix("/v1/models/").upper()
        body = '{"error": "Could not find any versions of model"}'
        if known := state in ("AVAILABLE", "LOADING", "END"):
            body = (
                '{\n "model_version_status": [\n  {\n   "version": "1",\n'
                f'   "state": "{state}",\n   "status": {{\n    "error_code": "OK",\n    "error_message": ""\n'
                "   }\n  }\n ]\n}\n"
            )
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self) -> None:
        # An unread body would reset the connection, and nginx might see that before the answer.
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(501)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def status_port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Status) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server.server_port
        server.shutdown()
