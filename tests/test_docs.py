"""The documentation: its messages are those of the package, and its site builds strictly."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
TITLES = re.findall(r"^### `(.*)`$", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)


@functools.cache
def messages() -> list[str]:
    """Returns all strings of the package, each in one line, with … where a value is filled in."""
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
    return [" ".join(text.split()).replace("`", "'") for text in found]


@pytest.mark.parametrize("title", TITLES)
def test_troubleshooting_quotes_messages_of_the_package(title):
    """Whatever changes a message must change the page; … stands for any value."""
    parts = title.replace("`", "'").split("…")
    assert any(in_order(parts, message) for message in messages()), title


def in_order(parts: list[str], message: str) -> bool:
    place = 0
    for part in parts:
        if (found := message.find(part, place)) < 0:
            return False
        place = found + len(part)
    return True


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://unpkg.com/mermaid.js"></script>',
        '<link rel="stylesheet" href="//fonts.googleapis.com/css">',
        "<style>@import 'https://example.org/a.css'; b {}</style>",
    ],
)
def test_a_site_that_asks_other_machines_is_refused(page, tmp_path):
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs/hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    (tmp_path / "index.html").write_text('<a href="https://arxiv.org">paper</a><img src="picture.png">')
    hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))
    (tmp_path / "other.html").write_text(page)
    with pytest.raises(Exception, match="must load nothing from other machines"):
        hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))


#: Sizes of notebooks -> sizes with which every cell runs. What a training of full size learns, the quickstart tests.
SMALL = {"--train [0-9]+": "--train 300", r"--(val|test) 200": r"--\1 40", "epochs=[0-9]+": "epochs=1"}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_are_small(path, tmp_path, monkeypatch):
    import nbformat

    from pipelines.notebooks import execute

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored, small = (nbformat.read(path, as_version=4) for _ in range(2))
    for cell in small.cells:
        for size, less in SMALL.items():
            cell.source = re.sub(size, less, cell.source)
    changed = [cell.source for cell, full in zip(small.cells, stored.cells, strict=True) if cell.source != full.source]
    assert len(changed) >= 2, "the sizes of the notebook are not those of SMALL"
    nbformat.write(small, tmp_path / path.name)
    execute(tmp_path / path.name, tmp_path)

    assert path.stat().st_size < 300_000
    assert all(cell.outputs or "=" in cell.source for cell in stored.cells if cell.cell_type == "code")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_links_of_parts_lead_somewhere_from_every_page(page):
    """A part of a page is read in other folders, too; the build of the site, which also finds this, is slow."""
    for source, name in re.findall(r'^--8<-- "(\S+\.md):(\S+)"$', page.read_text(encoding="utf-8"), re.MULTILINE):
        part = (ROOT / source).read_text(encoding="utf-8").split(f"[start:{name}]")[1].split(f"[end:{name}]")[0]
        for link in re.findall(r"\]\((?!\w+:)([^)#]+)", part):
            assert (page.parent / link).exists(), f"{source}:{name} -> {link}"


@pytest.mark.slow
def test_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert not done.returncode, done.stderr
    assert (tmp_path / "site/reference/commands.html").exists()
