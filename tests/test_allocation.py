"""Memory that is freed is used again."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys

import pytest

from vsemb.cli import __main__ as cli

#: Prints how often the system had to give a page to the second to the tenth buffer of 64 MiB.
SCRIPT = """
import resource
from vsemb.allocation import keep_freed_memory

keep_freed_memory()
bytearray(64 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(9):
    bytearray(64 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    command = [sys.executable, "-c", SCRIPT]
    return int(subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_reused_unless_the_environment_says_otherwise():
    # Nine buffers are 576 MiB: 147,456 pages, or 288 huge ones.
    assert faults() < 50 < 280 < faults(MALLOC_ARENA_MAX="8")


def test_commands_keep_memory_except_servers(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: called.append(True))
    assert cli.main(["serve", str(tmp_path / "missing")]) == 1
    assert cli.main(["demo", str(tmp_path / "missing")]) == 1
    assert not called
    assert cli.main(["info", str(tmp_path / "missing")]) == 1
    assert called


def test_garbage_is_searched_for_less_often_in_the_process_of_a_command_only(monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: None)
    arguments, before = ["info", str(tmp_path / "missing")], gc.get_threshold()
    try:
        gc.set_threshold(700)
        assert cli.main(arguments) == 1 and gc.get_threshold()[0] == 700
        monkeypatch.setattr(sys, "argv", ["vsemb", *arguments])
        assert cli.main() == 1 and gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*before)
