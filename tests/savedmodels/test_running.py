"""What runs in the containers beside the server: the readiness check and nginx.

No container engine is needed: the checks that a container would run are run here, against a small server.
"""

from __future__ import annotations

import http.server
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.savedmodels.files import (
    FOLDER,
    MODEL,
    REST,
    config_maps,
    listens,
    text,
)


def checks(compose: dict, containers: dict) -> list[list[str]]:
    serving = containers["serving"]
    return [
        compose["services"]["serving"]["healthcheck"]["test"][1:],
        serving["readinessProbe"]["exec"]["command"],
        serving["startupProbe"]["exec"]["command"],
    ]


def test_readiness_is_asked_with_the_script_of_this_folder(compose, containers):
    compose_check, *kubernetes_checks = checks(compose, containers)
    assert compose_check == ["bash", "/models/ready.sh", MODEL]
    for check in kubernetes_checks:
        assert check == ["bash", "/config/serving/ready.sh", MODEL]
    assert "ready.sh" in config_maps()["vsemb-serving"]
    assert f"REST_PORT:-{REST}" in text("ready.sh") and os.access(FOLDER / "ready.sh", os.X_OK)


@pytest.mark.parametrize(
    ("names", "ready"),
    [
        (["available"], True),
        (["available", "available"], True),
        (["loading"], False),
        (["end"], False),
        (["unknown"], False),
        (["available", "loading"], False),
        (["loading", "available"], False),
        ([], False),
    ],
)
def test_ready_means_available(names, ready, status_port):
    status = ready_status(names, status_port)
    assert (status == 0) is ready


def ready_status(names: list[str], port: int) -> int:
    command = ["bash", str(FOLDER / "ready.sh"), *names]
    environment = {**os.environ, "REST_PORT": str(port)}
    return subprocess.run(command, env=environment, capture_output=True, timeout=30).returncode


def test_not_ready_where_nothing_listens():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as unused:
        port = unused.server_port
    assert ready_status(["available"], port) != 0


def test_nginx_conf_is_well_formed():
    bare = re.sub(r"#[^\n]*", "", text("nginx.conf"))
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "x", bare)
    assert bare.count("{") == bare.count("}") > 10
    statements = re.split(r"[;{}]", bare)
    # A directive without its semicolon would swallow the next line.
    assert not [statement for statement in statements if "\n" in statement.strip()]
    assert "server serving:8501;" in bare and "server serving:8500;" in bare


def test_nginx_is_found_under_the_name_that_it_calls(compose, manifests):
    aliases = manifests["Deployment"]["spec"]["template"]["spec"]["hostAliases"]
    assert aliases[0]["hostnames"] == ["serving"] and "serving" in compose["services"]


@pytest.fixture(scope="module")
def nginx(tmp_path_factory, status_port):
    """nginx with this configuration before a small server; the ports of REST, gRPC and metrics."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    config = text("nginx.conf").replace("/var/cache/nginx", str(folder))
    config = config.replace("serving:8501", f"127.0.0.1:{status_port}").replace("serving:8500", "127.0.0.1:1")
    # A free port may be taken by another before nginx takes it; a socket in a folder cannot.
    for port in listens():
        config = config.replace(f"listen {port};", f"listen unix:{folder}/{port};")
    version = subprocess.run([program, "-v"], capture_output=True, text=True, timeout=30).stderr
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < (1, 25, 1):
        # Until then it was an argument of `listen`.
        config = config.replace("/9000;", "/9000 http2;").replace("http2 on;", "")
    if os.geteuid() == 0:
        # Its workers would be another user, who may not enter this folder.
        config = f"user root;\n{config}"
    (folder / "nginx.conf").write_text(config)
    command = [program, "-e", "stderr", "-c", str(folder / "nginx.conf")]
    tried = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=30)
    assert tried.returncode == 0 and "warn" not in tried.stderr, tried.stderr
    log = (folder / "log").open("wb")
    running = subprocess.Popen([*command, "-g", "daemon off;"], stdout=log, stderr=log)
    try:
        for _ in range(1000):
            if (folder / "8081").exists() or running.poll() is not None:
                break
            threading.Event().wait(0.01)
        assert running.poll() is None, (folder / "log").read_text()
        yield folder
    finally:
        running.terminate()
        running.wait(30)
        log.close()


def through_nginx(folder: Path, port: int, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    import http.client
    import socket

    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(folder / str(port)))
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/models/available", 200, '"state": "AVAILABLE"'),
        ("GET", "/v1/models/unknown", 404, "Could not find any versions"),
        ("GET", "/v1/models/available/versions/1/metadata", 404, "Could not find"),
        ("POST", "/v1/models/available:predict", 501, ""),
        ("POST", "/v1/models/available/labels/stable:predict", 501, ""),
        ("GET", "/v1/models/available:predict", 405, '{"error": "Method not allowed'),
        ("POST", "/v1/models/available", 405, '{"error": "Method not allowed'),
        ("DELETE", "/v1/models/available", 405, '{"error": "Method not allowed'),
        ("POST", "/v1/models/available:classify", 404, '{"error": "Not found'),
        ("GET", "/v1/models/a/b", 404, '{"error": "Not found'),
        ("GET", "/monitoring/prometheus/metrics", 404, '{"error": "Not found'),
        ("GET", "/", 404, '{"error": "Not found'),
        ("GET", "/healthz", 200, "ok"),
    ],
)
def test_nginx_lets_through_what_is_asked_of_a_model(method, path, status, says, nginx):
    got, body = through_nginx(nginx, 8080, method, path)
    assert got == status and says in body


def test_nginx_refuses_large_bodies_and_serves_metrics_elsewhere(nginx):
    status, body = through_nginx(nginx, 8080, "POST", "/v1/models/a:predict", bytes(33 * 2**20))
    assert status == 413 and body.startswith('{"error": "The request is larger')
    assert through_nginx(nginx, 8080, "POST", "/v1/models/a:predict", bytes(2**20))[0] == 501
    # The small server has none; nginx's own answer would be the other 404.
    assert "Could not find" in through_nginx(nginx, 8081, "GET", "/monitoring/prometheus/metrics")[1]
    assert "Could not find" not in through_nginx(nginx, 8081, "GET", "/v1/models/available")[1]
