"""Workers of one training: reading them from `TF_CONFIG`, and starting them on one machine."""

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
    """The number of this process among the workers of a training.

    Attributes:
        number: number of this worker, from 0.
        addresses: addresses of all workers, in the order of their numbers.
    """

    number: int
    addresses: tuple[str, ...]

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @contextlib.contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Return a context that ends the process after a time limit, since TensorFlow waits for workers forever.

        Ctrl-C and SIGTERM end the process at once inside the context.

        Args:
            seconds: maximum seconds inside the context.
        """

        def give_up() -> None:
            others = [*self.addresses[: self.number], *self.addresses[self.number + 1 :]]
            late = f"not all others came within {seconds:.0f} s ({', '.join(others)}). Start all of them."
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
    """Handle SIGINT (Ctrl-C) and SIGTERM by `handler` inside the context; no effect outside the main thread."""
    main_thread = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main_thread else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def read_task() -> Task:
    """Read the number of this worker, and all addresses, from the environment variable `TF_CONFIG`.

    Raises:
        InvalidArgumentError: if it is not set, is not JSON, has no workers, or has another kind of task.
    """
    text = os.environ.get("TF_CONFIG", "")
    fix = "On one machine, `workers` starts all of them: vsemb train RECIPE --data DATA --out RUN --workers 2"
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        role, index = task["type"], int(task["index"])
        chiefs, workers = cluster.get("chief", []), cluster.get("worker", [])
        number = index + len(chiefs) if role == "worker" else index
        addresses = (*chiefs, *workers)
        valid = set(cluster) <= {"chief", "worker"} and 0 <= index < len(cluster[role])
    except (ValueError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        allowed = f"workers and which of them this process is, such as {_EXAMPLE}"
        raise invalid_argument("TF_CONFIG", text or None, allowed, fix)
    return Task(number, addresses)


def launch(command: Sequence[str], workers: int, *, patience: float = 60.0) -> int:
    """Run a command as several workers on this machine, each with its `TF_CONFIG`.

    The output of worker 0 is shown, and the standard error of all. Ctrl-C and SIGTERM are sent to all workers, and end
    this process after them. If one fails, the others have `patience` seconds to end.

    Args:
        command: program and arguments, the same for all workers.
        workers: number of workers, 2 or more.
        patience: seconds from the first failure until the remaining workers are killed.

    Returns:
        0 if all workers succeed, else the exit status of the first that failed.

    Raises:
        InvalidArgumentError: for fewer than two workers.

    Example:

        launch([sys.executable, "train.py"], 2)
    """
    if workers < 2:
        raise invalid_argument("workers", workers, "an integer >= 2")
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(workers)]
    started: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def pass_on(number: int, frame: Any) -> None:
        received.append(number)
        for process in started:
            if process.poll() is None:
                process.send_signal(number)

    with handling_signals(pass_on):
        try:
            for index in range(workers):
                task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                environment = {**os.environ, "TF_CONFIG": json.dumps(task)}
                # Each worker has its own session. Ctrl-C in a terminal thus reaches it only once, through `pass_on`.
                output = None if index == 0 else subprocess.DEVNULL
                started.append(subprocess.Popen(command, env=environment, stdout=output, start_new_session=True))
            status = _wait(started, patience)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    if received:
        # The workers have ended; now this process ends in the same way.
        signal.raise_signal(received[0])
    return status


def _wait(processes: list[subprocess.Popen[bytes]], patience: float) -> int:
    failed, deadline = 0, float("inf")
    while time.monotonic() < deadline:
        statuses = [process.poll() for process in processes]
        failures = list(filter(None, statuses))
        if failures and not failed:
            # A process ended by a signal gets the status 128 + signal, as in shells.
            failed = failures[0] if failures[0] > 0 else 128 - failures[0]
            deadline = time.monotonic() + patience
        if None not in statuses:
            break
        time.sleep(0.1)
    return failed


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for unbound in sockets:
            unbound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]
