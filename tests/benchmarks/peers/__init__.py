"""The libraries that vsemb is compared with, each in a process and a virtual environment of its own.

Libraries such as PyTorch's compiler and TensorFlow end each other's process, so none is imported beside ours.
An environment is `build/peers/NAME`, made by `make build/peers/NAME/installed` from `NAME.txt` in this folder.
Arguments, results and times are exchanged by file. A process that ends is a reason, not a failure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[3]
#: The folder of virtual environments.
ENVIRONMENTS = _ROOT / "build" / "peers"
#: How many threads the libraries of NumPy, PyTorch and FAISS may use; read when a process starts.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ARGUMENTS, ANSWER = "arguments.npz", "answer.npz"
_REASON = 120


class PeerError(RuntimeError):
    """A peer that cannot be measured; the message is the reason."""


def save(path: Path, values: Mapping[str, Any]) -> None:
    """Writes arrays, lists of strings, numbers and strings."""
    np.savez(path, **values)


def load(path: Path) -> dict[str, Any]:
    """Reads what `save` wrote; arrays without dimensions become Python's numbers and strings."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: values if values.ndim else values.item() for name, values in arrays.items()}


class Peer:
    """A function of another library, called in a process of its own.

    The process calls `function(**arguments)` once. That returns what each call of the peer calls. After the
    process has ended, every call raises `PeerError` with the reason.

    Args:
        environment: name of its virtual environment in `ENVIRONMENTS`.
        function: `"module:function"`.
        threads: of its libraries; 0 for their own choice.
        seconds: after which a call is given up.
        variables: further environment variables.
        arguments: arrays, lists of strings, numbers and strings.

    Attributes:
        reason: why there is no process, or None.

    Example:

    ```python
    with Peer("torch", "tests.benchmarks.peers.order:loss", images=images, texts=texts) as peer:
        seconds = peer()["seconds"]
    ```
    """

    def __init__(
        self,
        environment: str,
        function: str,
        *,
        threads: int = 1,
        seconds: float = 1800,
        variables: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> None:
        self.reason: str | None = None
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        python = ENVIRONMENTS / environment / "bin" / "python"
        if not python.is_file():
            self.reason = f"{environment} is not installed: make build/peers/{environment}/installed"
            return
        self._folder = tempfile.TemporaryDirectory(prefix="vsemb-peer-", ignore_cleanup_errors=True)
        chosen = dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads else {}
        with Path(self._folder.name, "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", __name__, function, self._folder.name],
                cwd=_ROOT,
                env=os.environ | chosen | dict(variables or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # What it starts, such as a compiler, ends with it.
            )
        with contextlib.suppress(PeerError):  # The reason is kept.
            self(**arguments)

    def __call__(self, **arguments: Any) -> dict[str, Any]:
        """Calls the peer once.

        Raises:
            PeerError: if its process ended, now or before, or takes too long.
        """
        if self.reason is not None or self._process is None:
            raise PeerError(self.reason)
        folder = Path(self._folder.name)
        save(folder / ARGUMENTS, arguments)
        with contextlib.suppress(BrokenPipeError):  # It has ended; waiting tells how.
            os.write(self._process.stdin.fileno(), b"\n")
        self.reason = self._wait()
        if self.reason is not None:
            self.close()
            raise PeerError(self.reason)
        return load(folder / ANSWER)

    def _wait(self) -> str | None:
        """Waits for an answer; returns why there is none."""
        process = self._process
        over = time.monotonic() + self._seconds
        # A process that the peer left behind may keep the pipe open, so its end alone is not enough.
        while process.poll() is None and time.monotonic() < over:
            if select.select([process.stdout], [], [], min(1.0, self._seconds))[0]:
                if os.read(process.stdout.fileno(), 1):
                    return None
                break
        try:
            status = process.wait(max(0.1, min(10.0, over - time.monotonic())))
        except subprocess.TimeoutExpired:
            return f"was not over after {self._seconds:g} seconds"
        lines = Path(self._folder.name, "log").read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        ended = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{ended}: {last[:_REASON]}"

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # It has ended, and all that it started.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()
        self._folder.cleanup()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
