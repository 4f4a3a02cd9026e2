"""Commands in forked processes, with a fault at the n-th event of the file system.

The process that forks has imported TensorFlow and not started it, so a command costs what it computes and no import.
Events are Python's audit events: a file opened for writing, a folder made, a rename, a removal, a link, and `os.fsync`,
which is wrapped. What libraries write themselves (HDF5, TFRecords, checkpoints) is no event; kills at random times and
disks that are really full reach it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Events that need space on the disk, and all events.
_WRITING = ("open", "os.mkdir", "os.link", "os.rename", "os.fsync")
_EVENTS = (*_WRITING, "os.remove", "os.rmdir", "os.truncate")
_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Fault:
    """What happens at an event.

    Attributes:
        kind: `kill` (SIGKILL to the process and its children), `stop` (SIGSTOP to them), or `full`: this and all later
            events that need space fail.
        event: number of the event, from 0.
        code: the error of `full`.
    """

    kind: str
    event: int
    code: int = errno.ENOSPC


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: exit status; negative for a signal.
        errors: what it wrote to standard error.
        events: the number of events; 0 if it was killed.
        seconds: its time.
    """

    status: int
    errors: str
    events: int
    seconds: float

    @property
    def clear(self) -> bool:
        """Whether it failed with one line that gives the reason, and no traceback."""
        return self.status in (1, 2) and "Traceback" not in self.errors and bool(self.reason)

    @property
    def reason(self) -> str:
        """The last line of standard error."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else ""


class Process:
    """A command in a forked process, the leader of a group of its own.

    Args:
        command: returns the exit status.
        folder: the working directory, whose events count.
        log: file for standard error.
        fault: what happens to it.
    """

    def __init__(self, command: Callable[[], int | None], folder: Path, log: Path, fault: Fault | None = None) -> None:
        self._log, self._started = log, time.monotonic()
        self._reading, writing = os.pipe()
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.id = os.fork()
        if self.id:
            os.close(writing)
            self._handle = os.pidfd_open(self.id)
            return
        status = 70
        try:
            os.setpgid(0, 0)
            os.chdir(folder)
            for number, path in ((0, os.devnull), (1, os.devnull), (2, str(log))):
                os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            count = _watch(folder, fault)
            status = command() or 0
            os.write(writing, str(count()).encode())
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; false if it does not come in time."""
        if self._status is None and select.select([self._handle], [], [], max(seconds, 0.0))[0]:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1])
        return self._status is not None

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself or ended."""
        _, status = os.waitpid(self.id, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._status = os.waitstatus_to_exitcode(status)

    def send(self, number: int) -> None:
        """Send a signal to it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.id, number)

    def end(self, seconds: float = 300.0) -> Ended:
        """Wait for the end, and kill what is left of the group."""
        self.wait(seconds)
        self.send(signal.SIGKILL)
        self.wait(60.0)
        os.close(self._handle)
        with os.fdopen(self._reading, "rb") as pipe:
            ready = select.select([pipe], [], [], 0.0)[0]
            written = pipe.read(32) if ready else b""
        errors = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        status = -signal.SIGKILL if self._status is None else self._status
        return Ended(status, errors, int(written or 0), time.monotonic() - self._started)


def run(command: Callable[[], int | None], folder: Path, log: Path, fault: Fault | None = None) -> Ended:
    """Run a command to its end."""
    return Process(command, folder, log, fault).end()


def _watch(folder: Path, fault: Fault | None) -> Callable[[], int]:
    """Count events from now on, and let the fault happen; return a function that gives the count."""
    root, count = str(folder), 0
    # A killed process needs no disk: what it wrote is in the cache of the system.
    os.fsync = lambda descriptor: sys.audit("os.fsync", root)

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event not in _EVENTS or not _concerns(root, event, arguments):
            return
        number, count = count, count + 1
        if fault is None:
            return
        if fault.kind == "full":
            if number >= fault.event and event in _WRITING:
                raise OSError(fault.code, os.strerror(fault.code))
        elif number == fault.event:
            os.killpg(0, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)

    sys.addaudithook(hook)
    return lambda: count


def _concerns(root: str, event: str, arguments: tuple) -> bool:
    path = arguments[0]
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        if isinstance(path, int) or not (flags & _FLAGS if mode is None else set(mode) & set("wax+")):
            return False
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str | os.PathLike):
        return True
    # Names relative to a descriptor, as `shutil.rmtree` gives them, are not below the working directory; they count.
    return os.path.abspath(path).startswith(root)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """Mount a disk of memory on a folder; yield a function that remounts it with options such as `size=1m` or `ro`.

    Raises:
        PermissionError: if this process may not mount.
    """
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "faults", str(folder)]
    if _quietly(mount):
        raise PermissionError("mount")
    try:
        yield lambda options: _check(_quietly(["mount", "-o", f"remount,{options}", str(folder)]))
    finally:
        _quietly(["umount", "-l", str(folder)])


def _check(status: int) -> None:
    if status:
        raise OSError(errno.EBUSY, "remount")


def _quietly(words: list[str]) -> int:
    # Without `subprocess`, which would be audited like the command.
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with contextlib.suppress(OSError):
            os.execvp(words[0], words)
        os._exit(127)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
