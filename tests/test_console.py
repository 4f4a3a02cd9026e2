"""Notices, progress bars, and TensorFlow's silence."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from vsemb import console
from vsemb.cli import __main__ as cli


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_notices_and_bars_are_on_standard_error_unless_quiet(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert list(console.progress(range(3), "count", unit="image")) == [0, 1, 2]
    console.say("done")
    assert "count: 100%" in terminal.getvalue() and " image/s" in terminal.getvalue()
    assert terminal.getvalue().endswith("done\n")
    before = terminal.getvalue()
    with console.quieted():
        console.say("silence")
        list(console.progress(range(3), "count", unit="image"))
    assert terminal.getvalue() == before and capsys.readouterr().out == ""
    console.say("aloud")
    assert terminal.getvalue() == before + "aloud\n"


def test_a_bar_that_was_asked_for_needs_no_terminal_and_is_silenced_all_the_same(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    list(console.progress(range(3), "count", unit="image"))
    with console.quieted():
        list(console.progress(range(3), "count", unit="image", disable=False))
    assert stream.getvalue() == ""
    list(console.progress(range(3), "count", unit="image", disable=False))
    assert "count: 100%" in stream.getvalue()


def test_what_is_over_soon_has_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    list(console.progress(range(3), "count", unit="image", leave=False))
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("columns", [0, 100])
def test_a_terminal_of_size_zero_shows_the_bar(monkeypatch, columns):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        list(console.progress(range(2), "count", unit="image"))
    shown = b""
    # After the terminal is closed, reading ends with an error.
    with contextlib.suppress(OSError):
        while block := os.read(leader, 10_000):
            shown += block
    os.close(leader)
    assert b"count: 100%" in shown and b"2/2" in shown


def test_the_accent_needs_a_terminal_and_no_objection(monkeypatch):
    assert console.accented("split") == "split"
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert console.accented("split") == "\033[1;36msplit\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.accented("split") == "split"


@pytest.mark.slow
def test_tensorflow_starts_without_a_word():
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "vsemb.cli", "evaluate", "nowhere"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("vsemb evaluate: nowhere must be a run directory") and done.stderr.count("\n") == 1


def test_messages_of_libraries_are_shown_only_with_an_exception(capfd):
    with cli._stderr_aside():
        os.write(2, b"noise\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ImportError), cli._stderr_aside():
        os.write(2, b"a library is missing\n")
        raise ImportError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "a library is missing\nafter\n"


def test_advice_on_tracing_is_dropped_inside_the_context() -> None:
    logger = logging.getLogger("tensorflow")
    record = logging.LogRecord(
        "tensorflow", logging.WARNING, "", 0, "%s triggered tf.function retracing.", ("f",), None
    )
    before = list(logger.filters)
    with console.without_tracing_advice():
        (ours,) = [each for each in logger.filters if each not in before]
        assert not ours(record)
    assert logger.filters == before
