"""Raw requests over HTTP, so that tests see statuses and bodies as they are."""

from __future__ import annotations

import http.client
import json
from typing import Any


def ask(
    port: int, method: str, path: str, body: bytes | str | dict | None = None, headers: dict | None = None
) -> tuple[int, Any]:
    """Sends one request and returns the status and the body, parsed if it is JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        if response.getheader("Content-Type", "").startswith("application/json"):
            return response.status, json.loads(content)
        return response.status, content
    finally:
        connection.close()
