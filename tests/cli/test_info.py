"""`vsemb info`."""

from __future__ import annotations

import json
import subprocess
import sys

from vsemb.cli.__main__ import main


def test_needs_no_tensorflow(tiny_run, tmp_path):
    code = (
        "import sys, vsemb.cli.__main__ as cli\n"
        "assert cli.main(sys.argv[1:]) == 0\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules), 'loaded'\n"
    )
    report = tmp_path / "info.json"
    command = [sys.executable, "-c", code, "info", str(tiny_run.path), "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["run", str(tiny_run.path)] and "next" in lines
    found = json.loads(report.read_text())
    assert found["kind"] == "run" and all(f"  {command}" in lines for command in found["next"])


def test_another_directory_is_one_line(tmp_path, capsys):
    assert main(["info", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert str(tmp_path) in error and error.count("\n") == 1
