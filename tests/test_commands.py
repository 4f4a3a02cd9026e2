"""What subcommands share: tables, modes, options."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from vsemb import commands, registry
from vsemb.commands import add_modes, add_options, apply_options, check_image_files, table
from vsemb.errors import InvalidArgumentError


def test_columns_of_text_and_numbers_without_trailing_blanks():
    rows = [["1", "a", "first"], ["10", "long", ""]]
    assert table(["n", "key", "text"], rows, text=(1, 2)).splitlines() == [
        " n  key   text",
        " 1  a     first",
        "10  long",
    ]


class Boxes:
    SUMMARY = "find boxes"
    USES = ("count",)

    @staticmethod
    def configure(parser) -> None:
        parser.add_argument("--min-size", type=int, default=3)


class Words:
    SUMMARY = "find words"

    @staticmethod
    def configure(parser) -> None:
        parser.add_argument("--font")


@pytest.fixture
def parser(monkeypatch) -> argparse.ArgumentParser:
    """A command with the modes `boxes` and `some-words`, and an option of its own, which `boxes` reads too."""
    modules = {"boxes": Boxes, "words": Words}
    monkeypatch.setattr(registry, "modes", lambda command: {"boxes": "boxes", "some-words": "words"})
    monkeypatch.setattr(registry, "load", modules.__getitem__)
    parser = argparse.ArgumentParser()
    parser.add_argument("image")

    def own(to) -> None:
        to.add_argument("--count", type=int, default=5)
        to.add_argument("--colour", action="store_true")

    add_modes(parser, "find", own=own)
    return parser


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("", None),
        ("--count 3 --colour", None),
        ("--boxes --min-size 4 --count 2", "boxes"),
        ("--some-words", "some-words"),
    ],
)
def test_a_mode_takes_its_options_and_those_that_it_uses(parser, given: str, chosen: str | None) -> None:
    arguments = parser.parse_args(["x.png", *given.split()])
    assert arguments.modes.chosen(arguments) == chosen
    arguments.modes.check(arguments, chosen or "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--min-size 4", "--min-size must be used with --boxes; got it without it. Leave it out."),
        ("--boxes --font x", "--font must be used with --some-words; got it with --boxes. Leave it out."),
        ("--boxes --colour", "--colour must be used without a mode; got it with --boxes. Leave it out."),
        ("--some-words --count 9", "--count must be used without a mode or with --boxes; got it with --some-words."),
        ("--boxes --some-words", "--boxes must stand alone; got --some-words too. Run one at a time."),
    ],
)
def test_options_of_other_modes_are_refused(parser, given: str, said: str) -> None:
    arguments = parser.parse_args(["x.png", *given.split()])
    with pytest.raises(InvalidArgumentError) as error:
        arguments.modes.check(arguments, arguments.modes.chosen(arguments) or "")
    assert said in str(error.value)


def test_an_option_at_its_default_is_no_option(parser) -> None:
    arguments = parser.parse_args(["x.png", "--some-words", "--count", "5"])
    arguments.modes.check(arguments, "some-words")


def test_systems_add_options_and_keywords(monkeypatch) -> None:
    def module(name: str, keywords):
        def configure(parser) -> None:
            parser.add_argument(f"--{name}")

        return SimpleNamespace(configure=configure, apply=lambda arguments, run: keywords(arguments, run))

    modules = {
        "a": module("first", lambda arguments, run: {"extras": (arguments.first, run)}),
        "b": module("second", lambda arguments, run: {"extras": (arguments.second,), "limit": 3}),
        "c": module("third", lambda arguments, run: None),
    }
    systems = (
        registry.System("x", options={"run": ("c",), "find": ("a",)}),
        registry.System("y", options={"find": ("b",)}),
    )
    monkeypatch.setattr(registry, "systems", lambda: systems)
    monkeypatch.setattr(registry, "load", modules.__getitem__)
    parser = argparse.ArgumentParser()
    add_options(parser, "run", "find")
    arguments = parser.parse_args(["--first", "1", "--second", "2", "--third", "3"])
    assert apply_options(arguments, "a run", "run", "find") == {"extras": ("1", "a run", "2"), "limit": 3}
    assert apply_options(arguments, "a run", "run") == {}


def test_files_that_are_read_are_not_written(tmp_path) -> None:
    image = str(tmp_path / "dog.png")
    check_image_files([image], out=str(tmp_path / "out.png"), json=str(tmp_path / "out.json"))
    check_image_files([image], out=None, json=None)
    for files in ({"out": image}, {"json": f"{tmp_path}/../{tmp_path.name}/dog.png"}):
        with pytest.raises(InvalidArgumentError, match="another file than the image, which it would replace"):
            check_image_files([image], **files)
    with pytest.raises(InvalidArgumentError, match="json.*another file than the picture"):
        check_image_files([], out="a.png", json="./a.png")


def test_progress_goes_to_standard_error(capsys) -> None:
    commands.say("half of it")
    assert capsys.readouterr() == ("", "half of it\n")
