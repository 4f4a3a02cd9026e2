"""A pytest plugin: each test file runs in a process of its own, `--processes N` at a time; 0 runs all in one.

The processes are forked when the libraries are imported, and each collects its own file. So TensorFlow is imported
once, tests are collected on all processors, and a process that ends gives back the memory of its graphs.

Data and runs that files share are made once, in the folder of the environment variable VSEMB_SHARED, where another call
with the same code finds them; by default in a temporary one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import pkgutil
import shutil
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace

import pytest

#: The folder whose files the processes share.
SHARED = pytest.StashKey[Path]()

#: Tests of each file that is collected, and the number of all files.
_COUNTS = pytest.StashKey[tuple[list[int], int]]()

#: Seconds that a test may take, and that one on real data may take, which trains for up to an hour.
_PATIENCE, _PATIENCE_REAL = 900.0, 7200.0

#: New objects at which garbage is looked for.
_GARBAGE = 10_000

#: Libraries that tests import, in the order of need: imported first where so many files are run.
_FIRST, _LATE, _MANY = ("tensorflow", "keras"), ("gradio", "nltk", "keras_hub", "sklearn.cross_decomposition"), 30


def pytest_addoption(parser: pytest.Parser) -> None:
    default = min(os.cpu_count() or 1, 4)
    text = "each test file runs in a process of its own, so many at a time; 0 for one process, as --pdb does"
    parser.addoption("--processes", type=int, default=default, metavar="N", help=text)


def _in_processes(config: pytest.Config) -> bool:
    return bool(config.option.processes and not config.option.usepdb and not config.option.collectonly)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    # Each process collects its own file.
    return True if _in_processes(session.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not _in_processes(session.config):
        return None
    folder = session.config._tmp_path_factory.getbasetemp()
    files = list(_files(session.config).values())
    session.config.stash[SHARED] = shared = Path(os.environ.get("VSEMB_SHARED", folder))
    shared.mkdir(parents=True, exist_ok=True)
    session.config.stash[_COUNTS] = ([], len(files))
    waiting = iter(enumerate(files))
    running: dict[Connection, Worker] = {}

    def start() -> bool:
        if (following := next(waiting, None)) is None:
            return False
        worker = Worker(session, following[1], folder / f"file-{following[0]}")
        running[worker.reports] = worker
        return True

    # Imports and traces make objects that live on, through which the default, at every 700, looks again and again.
    gc.set_threshold(_GARBAGE)
    try:
        _import(*_FIRST)
        if len(files) > _MANY:
            # The first process works while this one imports.
            start()
            _import(*_modules("vsemb"), *_LATE)
        # What is there stays: no process need look through it for garbage.
        gc.collect()
        gc.freeze()
        while True:
            while len(running) < session.config.option.processes and start():
                pass
            if not running:
                return True
            for worker in running.values():
                worker.check_it_is_alive()
            for connection in wait(list(running), timeout=10):
                if not running[connection].receive():
                    running.pop(connection).end()
                if session.shouldfail or session.shouldstop:
                    raise session.Failed(session.shouldfail or session.shouldstop)
    finally:
        for worker in running.values():
            worker.kill()


def _files(config: pytest.Config) -> dict[Path, list[str]]:
    """Each test file that pytest's arguments name -> the arguments that name it or tests of it."""
    found: dict[Path, list[str]] = {}
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if path.is_dir():
            found |= {file: [str(file)] for file in sorted(path.rglob("test_*.py"))}
        else:
            found.setdefault(path, []).append(argument)
    return found


def _count(session: pytest.Session, tests: int) -> None:
    """Tell pytest, which shows the share that is done, of the tests that a file has."""
    counts, files = session.config.stash[_COUNTS]
    counts.append(tests)
    # Files that are not collected yet are taken to have as many tests as the others.
    session.testscollected = round(sum(counts) * files / len(counts))


def _import(*names: str) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _modules(package: str) -> Iterator[str]:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            yield module.name


class Worker:
    """A process that collects and runs the tests of one file.

    Args:
        session: the session of the process that forks it.
        arguments: what pytest is to collect.
        folder: for temporary files.

    Attributes:
        reports: where the reports of its tests arrive.
    """

    def __init__(self, session: pytest.Session, arguments: list[str], folder: Path) -> None:
        self._session = session
        #: Tests that have not ended; before they are collected, the file.
        self._left: dict[str, tuple[str, int | None, str]] = {arguments[0]: (arguments[0], None, arguments[0])}
        self._heard, self._patience = time.monotonic(), _PATIENCE
        self.reports, ours = Pipe(duplex=False)
        sys.stdout.flush()
        self._process = os.fork()
        if not self._process:
            status = 1
            try:
                _run(session, arguments, folder, ours)
                status = 0
            finally:
                os._exit(status)
        ours.close()

    def receive(self) -> bool:
        """Pass a report on to pytest; false when there will be no more."""
        hook, config = self._session.config.hook, self._session.config
        try:
            kind, content = self.reports.recv()
        except EOFError:
            return False
        self._heard = time.monotonic()
        if kind == "start":
            hook.pytest_runtest_logstart(nodeid=content[0], location=content[1])
        elif kind == "collected":
            self._left, deselected, real = content
            self._patience = _PATIENCE_REAL if real else _PATIENCE
            _count(self._session, len(self._left))
            if deselected:
                # They are only counted.
                hook.pytest_deselected(items=[SimpleNamespace() for _ in range(deselected)])
        elif kind == "not collected":
            self._left = {}
            hook.pytest_collectreport(report=hook.pytest_report_from_serializable(config=config, data=content))
        elif kind == "usage":
            raise pytest.UsageError(*content)
        else:
            report = hook.pytest_report_from_serializable(config=config, data=content)
            if report.when == "teardown":
                self._left.pop(report.nodeid, None)
            hook.pytest_runtest_logreport(report=report)
        return True

    def end(self) -> None:
        """Report what the process left undone as failed."""
        _, status = os.waitpid(self._process, 0)
        self.reports.close()
        for name, location in self._left.items():
            text = f"the process ended with {os.waitstatus_to_exitcode(status)} before this test did"
            report = pytest.TestReport(name, location, {}, "failed", text, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)

    def check_it_is_alive(self) -> None:
        """End a process that hangs; its tests then fail."""
        if time.monotonic() - self._heard > self._patience:
            os.kill(self._process, 9)

    def kill(self) -> None:
        os.kill(self._process, 9)
        os.waitpid(self._process, 0)


class _Sender:
    """Sends what pytest reports to the process that forked this one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection, self.failed, self.deselected = config, connection, False, 0

    def send(self, kind: str, content: object) -> None:
        self._connection.send((kind, content))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.deselected += len(items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.send(
                "not collected", self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            )

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.send("start", (nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.send("report", content)


def _run(session: pytest.Session, arguments: list[str], folder: Path, connection: Connection) -> None:
    config = session.config
    # Files of tests need not survive a loss of power.
    os.fsync = lambda descriptor: None
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    # TensorFlow writes its messages to the stream that was there when it was imported, which is closed now.
    for handler in logging.getLogger("tensorflow").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.stream = sys.stderr
    config.pluginmanager.unregister(name="terminalreporter")
    sender = _Sender(config, connection)
    config.pluginmanager.register(sender)
    failed_before = session.testsfailed
    try:
        items = session.perform_collect(arguments)
    except pytest.UsageError as error:
        return sender.send("usage", error.args)
    if not items and session.testsfailed > failed_before:
        return None
    real = any(item.get_closest_marker("real_data") for item in items)
    sender.send("collected", ({item.nodeid: item.location for item in items}, sender.deselected, real))
    for item, following in zip(items, [*items[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if not sender.failed:
        shutil.rmtree(folder, ignore_errors=True)
