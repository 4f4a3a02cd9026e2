"""Workers of one training: what `TF_CONFIG` says of them, and starting them on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vsemb.errors import invalid_argument

_EXAMPLE = '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Task:
    """Which of several workers a process is.

    Attributes:
        number: from 0 on.
        addresses: of all workers, in the order of their numbers.
    """

    number: int
    addresses: tuple[str, ...]

    @property
    def workers(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @contextlib.contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Ends the process if what is done here takes longer: TensorFlow waits for workers without end.

        Ctrl-C and SIGTERM act at once meanwhile.

        Args:
            seconds: the limit.
        """

        def give_up() -> None:
            others = ", ".join(a for i, a in enumerate(self.addresses) if i != self.number)
            late = f"not all others came within {seconds:.0f} s ({others}). Start all of them."
            print(f"Worker {self.number} of {self.workers}: {late}", file=sys.stderr, flush=True)
            os._exit(1)

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        with handling_signals(signal.SIG_DFL):
            timer.start()
            try:
                yield
            finally:
                timer.cancel()


@contextlib.contextmanager
def handling_signals(handler: Any) -> Iterator[None]:
    """Handles SIGINT (Ctrl-C) and SIGTERM by `handler` meanwhile; only in the main thread, as Python demands."""
    main_thread = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main_thread else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def read_task() -> Task:
    """Read which worker this process is from the environment variable `TF_CONFIG`.

    Raises:
        InvalidArgumentError: if it is not set, is not JSON, or names no workers or another kind of task.
    """
    text = os.environ.get("TF_CONFIG", "")
    fix = "On one machine, --workers N starts N workers by itself."
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
        before = len(cluster.get("chief", [])) if kind == "worker" else 0
        known = set(cluster) <= {"chief", "worker"} and kind in cluster and 0 <= index < len(cluster[kind])
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        allowed = f"workers and which of them this process is, such as {_EXAMPLE}"
        raise invalid_argument("TF_CONFIG", text or None, allowed, fix)
    return Task(before + index, tuple(addresses))


def launch(command: Sequence[str], workers: int, *, patience: float = 60.0) -> int:
    """Run a command as several workers on this machine, each with its `TF_CONFIG`.

    Worker 0's output is shown, and of the others the standard error. Ctrl-C and SIGTERM reach
    all of them. Once one has failed, the others have some time to end by themselves.

    Args:
        command: program and arguments, the same for all workers.
        workers: how many.
        patience: seconds until workers are killed after one has failed.

    Returns:
        0 if all did, else the status of the first that failed.

    Raises:
        InvalidArgumentError: for fewer than two workers.

    Example:

        launch([sys.executable, "-m", "vsemb.cli", "train", "vsepp", "--strategy", "multiworker", ...], 2)
    """
    if workers < 2:
        raise invalid_argument("workers", workers, "an integer >= 2")
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: Any) -> None:
        for process in started:
            if process.poll() is None:
                process.send_signal(number)

    with handling_signals(pass_on):
        try:
            for index in range(workers):
                task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                environment = {**os.environ, "TF_CONFIG": json.dumps(task)}
                # A process group of their own: Ctrl-C in a terminal then reaches each of them once, from here.
                output = None if index == 0 else subprocess.DEVNULL
                started.append(subprocess.Popen(command, env=environment, stdout=output, start_new_session=True))
            return _wait(started, patience)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _wait(processes: list[subprocess.Popen[bytes]], patience: float) -> int:
    failed, deadline = 0, float("inf")
    while time.monotonic() < deadline:
        statuses = [process.poll() for process in processes]
        if not failed and any(statuses):
            first = next(status for status in statuses if status)
            # As shells have it for a process that a signal ended.
            failed, deadline = first if first > 0 else 128 - first, time.monotonic() + patience
        if None not in statuses:
            break
        time.sleep(0.1)
    return failed


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
