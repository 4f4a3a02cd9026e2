"""Servers in processes of their own, and when they are ready."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODEL_SERVER = "tensorflow_model_server"


@contextlib.contextmanager
def in_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Yields what `serve(connection, *arguments)` sends first from another process, which waits to be told to end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        with contextlib.suppress(OSError):
            ours.send(None)
        process.join(60)


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


@contextlib.contextmanager
def model_server(base: Path) -> Iterator[int]:
    """Yields the port of REST of TensorFlow Serving's own server, which must be on PATH."""
    port = free_port()
    options = {"rest_api_port": port, "port": free_port(), "model_name": "model", "model_base_path": base.resolve()}
    command = [shutil.which(MODEL_SERVER) or MODEL_SERVER, *(f"--{name}={value}" for name, value in options.items())]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            if not answers(port, process):
                raise RuntimeError(f"{MODEL_SERVER} ended with status {process.returncode}")
            yield port
        finally:
            process.kill()
