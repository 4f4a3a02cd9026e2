"""Servers in processes of their own, and when they are ready."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from typing import Any


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(port: int, process: subprocess.Popen[Any]) -> bool:
    """Waits until a server says over REST that `model` is available; False where its process ends before."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models/model", timeout=60) as response:
                if b"AVAILABLE" in response.read():
                    return True
        except OSError:  # It does not listen yet, or has no version of the model.
            pass
        time.sleep(0.01)
    return False
