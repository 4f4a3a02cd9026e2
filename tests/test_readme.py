"""The README does what it says: its Python runs, its commands parse, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest

from vsemb.cli import __main__ as cli
from vsemb.data.synthetic import generate
from vsemb.data.writing.writer import write_dataset

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / path for path in ("README.md", "CONTRIBUTING.md", "savedmodels/README.md", "pipelines/README.md")]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("vsemb ")]


def test_python_example_is_short_and_runs(tmp_path, monkeypatch, capsys):
    (example,) = blocks(ROOT / "README.md", "python")
    code = [line for line in example.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) < 25
    records = list(generate({"train": 260, "val": 20}, seed=3))
    write_dataset(records, tmp_path / "quickstart" / "scenes", name="scenes", source={"format": "scenes"})
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`shuffle=True` was passed")
        exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "val_recall_sum" in printed
    assert list((tmp_path / "quickstart" / "logs").rglob("events.out.*"))


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line):
    _, name, *arguments = shlex.split(line, comments=True)
    cli.command_parser(name).parse_args(arguments)


def test_what_a_wheel_lacks_is_said_to_need_a_checkout():
    assert "[options.packages.find]\ninclude =\n    vsemb*\n" in (ROOT / "setup.cfg").read_text()
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    programs = [line for line in lines if "-m pipelines." in line]
    assert programs and all("# in a checkout" in line for line in programs)
    # The page on pipelines says it once, for all.
    assert "checkout of the repository" in (ROOT / "pipelines" / "README.md").read_text().split("\n|")[0]


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_has_help_with_an_example(name):
    text = cli.command_parser(name).format_help()
    assert f"vsemb {name}" in text.split("examples:")[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", "\n".join(blocks(page, "sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
