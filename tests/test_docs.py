"""The documentation: its messages are those of the package, and its site builds strictly."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TITLES = re.findall(r"^### `(.*)`$", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)


@functools.cache
def messages() -> str:
    """Returns all strings of the package, a line each, with … where a value is filled in."""
    found = []
    for path in (ROOT / "vsemb").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(
                        str(getattr(value, "value", "…")) if isinstance(value, ast.Constant) else "…"
                        for value in node.values
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(" ".join(text.split()) for text in found).replace("`", "'")


@pytest.mark.parametrize("title", TITLES)
def test_troubleshooting_quotes_messages_of_the_package(title):
    """Whatever changes a message must change the page; … stands for any value."""
    pattern = ".*".join(re.escape(part) for part in title.replace("`", "'").split("…"))
    assert re.search(pattern, messages()), title


@pytest.mark.slow
def test_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    assert (tmp_path / "site/reference/commands.html").exists()
