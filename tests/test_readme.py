"""README and documentation do what they say: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import csv
import re
import shlex
import warnings
from configparser import ConfigParser
from pathlib import Path

import pytest

import vsemb
from tests.tiny import tiny
from vsemb import recipes
from vsemb.api.training import train
from vsemb.cli import __main__ as cli
from vsemb.data.synthetic import generate
from vsemb.data.writing.writer import write_dataset

ROOT = Path(__file__).parents[1]
OUTSIDE = [ROOT / path for path in ("README.md", "CONTRIBUTING.md", "savedmodels/README.md", "pipelines/README.md")]
PAGES = [*OUTSIDE, *sorted((ROOT / "docs").rglob("*.md"))]


def code(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Returns (language, code) of a page's blocks, in order."""
    fenced = re.compile(rf"^```({'|'.join(languages)})\n(.*?)```", re.DOTALL | re.MULTILINE)
    return fenced.findall(page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    return [block for _, block in code(page, language)]


def commands() -> list[str]:
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("vsemb ")))


def train_small(recipe: str, data: object, out: str, *, backbone: str | None = None, **fields: object) -> object:
    """Trains as `vsemb.train` does, in seconds and without a download."""
    layer = ("image.size=32", "image.layer=block2_relu") if recipe == "best" else ()
    small = tiny(recipes.get(recipe), "batches.size=16", "training.epochs=1", *layer)
    network = {} if backbone is None else {"backbone": "SmallConvNet", "weights": "random"}
    fields = {name: value for name, value in fields.items() if name != "epochs"}
    return train(small, data, out, **network, **fields)


def write_photos(folder: Path, records: list) -> None:
    """Writes `photos/` and `captions.csv`, what a reader has of their own."""
    (folder / "photos").mkdir()
    with (folder / "captions.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "caption", "split", "class"])
        for number, record in enumerate(records):
            (folder / "photos" / f"{number}.jpg").write_bytes(record.image)
            table.writerows([f"{number}.jpg", caption, record.split, "scene"] for caption in record.captions)


# The first of the README searches with a pretrained model, which tests/e2e has a stand-in for.
OF_README, OF_KERAS = blocks(ROOT / "README.md", "python")[1], blocks(ROOT / "docs/guides/keras.md", "python")[-1]
#: Python that tests of its own run, so that tests/e2e leaves it out.
EXAMPLES = (OF_README, OF_KERAS)


@pytest.mark.slow
def test_readme_is_short_and_its_python_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    write_photos(tmp_path, list(generate({"train": 40, "val": 8, "test": 8}, seed=5, image_size=32)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vsemb, "train", train_small)
    exec(compile(OF_README, "README.md", "exec"), {})
    assert "R@10" in capsys.readouterr().out and (tmp_path / "savedmodels/python/1").is_dir()


@pytest.mark.slow
def test_keras_example_is_short_and_runs(tmp_path, monkeypatch, capsys):
    code = [line for line in OF_KERAS.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) < 25
    records = list(generate({"train": 260, "val": 20}, seed=3))
    write_dataset(records, tmp_path / "quickstart" / "scenes", name="scenes", source={"format": "scenes"})
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`shuffle=True` was passed")
        exec(compile(OF_KERAS, "keras.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "val_recall_sum" in printed
    assert list((tmp_path / "quickstart" / "logs").rglob("events.out.*"))


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line):
    _, name, *arguments = shlex.split(line, comments=True)
    cli.command_parser(name).parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_compiles(page):
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_what_a_wheel_lacks_is_said_to_need_a_checkout():
    # As data, since setuptools writes the file anew in a distribution.
    configuration = ConfigParser()
    configuration.read(ROOT / "setup.cfg")
    assert configuration["options.packages.find"]["include"].split() == ["vsemb*"]
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    programs = [line for line in lines if "-m pipelines." in line]
    assert programs and all("# in a checkout" in line for line in programs)
    # The page on pipelines says it once, for all.
    assert "checkout of the repository" in (ROOT / "pipelines" / "README.md").read_text().split("\n|")[0]


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_has_help_with_an_example(name):
    text = cli.command_parser(name).format_help()
    assert f"vsemb {name}" in text.split("examples:")[1]


# Links of the other pages are checked by `make docs`, which knows the generated ones, too.
@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", "\n".join(blocks(page, "sh")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
