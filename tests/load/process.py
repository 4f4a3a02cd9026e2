"""`vsemb serve` in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path


class ServerProcess:
    """A server in another process; a context manager that ends it.

    Args:
        base: directory of the model.
        *options: further options of `vsemb serve`.
        log: file for the server's log; None for this process' standard error.
    """

    def __init__(self, base: Path, *options: str, log: Path | None = None) -> None:
        command = [sys.executable, "-m", "vsemb.cli", "serve", str(base), "--port", "0", "--rest-port", "0", *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with contextlib.ExitStack() as stack:
            errors = None if log is None else stack.enter_context(log.open("w"))
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert self.process.stdout is not None
        self.port = self._port("gRPC", self.process.stdout.readline())
        self.rest_port = self._port("REST", self.process.stdout.readline())

    @staticmethod
    def _port(api: str, line: str) -> int:
        found = re.match(rf"{api} .*:(\d+)$", line.strip())
        assert found, f"the server did not start: {line!r}"
        return int(found[1])

    def memory(self, field: str = "VmRSS") -> int:
        """Return the resident memory in MiB; `VmHWM` for its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) // 1024

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process by a signal and return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(120)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
