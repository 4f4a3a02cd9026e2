"""A server with very many idle connections: `python -m tests.load.connections --connections 2000`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.load.model import publish
from tests.load.process import ServerProcess

BODY = '{"instances": ["a"]}'


def ask(port: int, path: str, body: str | None = None) -> str:
    """Send one request and return its status, or `closed`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()


def measure(connections: int, seconds: float, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the answers while idle connections are held, and the bytes of log and MiB of memory that they took.

    Args:
        connections: number of idle connections over REST, opened again when the server closes them.
        seconds: how long they are held.
        options: further options of `vsemb serve`.
    """
    answers: dict[str, Counter[str]] = {name: Counter() for name in ("/health", "/metrics", "predict", "predict after")}
    with tempfile.TemporaryDirectory() as folder:
        base, log = Path(folder) / "sizes", Path(folder) / "log"
        publish(base)
        with ServerProcess(base, *options, log=log) as server:
            port, before, started = server.rest_port, server.memory(), log.stat().st_size
            predict = "/v1/models/sizes:predict"
            with contextlib.ExitStack() as stack:
                for _ in range(connections):
                    with contextlib.suppress(OSError):
                        stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                # Those in the room are closed after five seconds; then there is room for others.
                time.sleep(6)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    for path in ("/health", "/metrics"):
                        answers[path][ask(port, path)] += 1
                    answers["predict"][ask(port, predict, BODY)] += 1
                    time.sleep(0.1)
            time.sleep(1)
            answers["predict after"][ask(port, predict, BODY)] += 1
            took = {"memory_mib": server.memory() - before, "log_bytes": log.stat().st_size - started}
    return {"connections": connections, **took, "answers": {name: dict(found) for name, found in answers.items()}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("options", nargs="*", help="further options of `vsemb serve`, after --")
    given = parser.parse_args()
    found = measure(given.connections, given.seconds, tuple(given.options))
    print(json.dumps(found, indent=2))
    sys.exit(any(set(found["answers"][name]) != {"200"} for name in ("/health", "/metrics", "predict after")))
