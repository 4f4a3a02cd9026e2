"""A pytest plugin: each test file runs in a process of its own, `--processes N` at a time; 0 runs all in one.

The processes are forked when all tests are collected. So TensorFlow is imported once, and a process that ends gives
back the memory of its graphs. No test module may make a tensor as it is imported: TensorFlow's threads do not survive
a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import shutil
import sys
import time
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pytest

#: The folder whose files the processes share.
SHARED = pytest.StashKey[Path]()

#: Seconds that a test may take, and that one on real data may take, which trains for up to an hour.
_PATIENCE, _PATIENCE_REAL = 900.0, 7200.0

#: Libraries that take long to import and that tests import late; imported first where this many files are run.
_LATE, _MANY = ("gradio", "nltk", "keras_hub", "sklearn.cross_decomposition"), 30


def pytest_addoption(parser: pytest.Parser) -> None:
    default = min(os.cpu_count() or 1, 4)
    text = "each test file runs in a process of its own, so many at a time; 0 for one process, as --pdb does"
    parser.addoption("--processes", type=int, default=default, metavar="N", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.processes or options.usepdb or options.collectonly or session.testsfailed:
        return None
    _check_tensorflow_has_not_started()
    folder = session.config._tmp_path_factory.getbasetemp()
    session.config.stash[SHARED] = folder
    files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
    waiting = iter(enumerate(files))
    running: dict[Connection, Worker] = {}

    def start() -> bool:
        if (following := next(waiting, None)) is None:
            return False
        worker = Worker(session, following[1], folder / f"file-{following[0]}")
        running[worker.reports] = worker
        return True

    try:
        # The first process works while this one imports.
        start()
        if len(files) > _MANY:
            for name in _LATE:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
        # What is there stays: no process need look through it for garbage.
        gc.collect()
        gc.freeze()
        while True:
            while len(running) < options.processes and start():
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


def _check_tensorflow_has_not_started() -> None:
    if tensorflow := sys.modules.get("tensorflow"):
        try:
            # Only to see: once TensorFlow has started, another number is an error.
            tensorflow.config.threading.set_inter_op_parallelism_threads(2)
        except RuntimeError:
            text = "A test module made a tensor as it was imported; make it in a function or a fixture."
            raise pytest.UsageError(text) from None


class Worker:
    """A process that runs the tests of one file.

    Attributes:
        reports: where the reports of its tests arrive.
    """

    def __init__(self, session: pytest.Session, items: list[pytest.Item], folder: Path) -> None:
        self._session = session
        self._left = {item.nodeid: item for item in items}
        self._heard = time.monotonic()
        real = any(item.get_closest_marker("real_data") for item in items)
        self._patience = _PATIENCE_REAL if real else _PATIENCE
        self.reports, ours = Pipe(duplex=False)
        sys.stdout.flush()
        self._process = os.fork()
        if not self._process:
            status = 1
            try:
                _run(session, items, folder, ours)
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
        for item in self._left.values():
            text = f"the process ended with {os.waitstatus_to_exitcode(status)} before this test did"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
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
        self._config, self._connection, self.failed = config, connection, False

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", content))


def _run(session: pytest.Session, items: list[pytest.Item], folder: Path, connection: Connection) -> None:
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
    for item, following in zip(items, [*items[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if not sender.failed:
        shutil.rmtree(folder, ignore_errors=True)
