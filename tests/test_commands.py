"""Parts of subcommands: modes and options."""

from __future__ import annotations

import argparse

import pytest

from vsemb import registry
from vsemb.commands import Mode, Modes, Options, add_options, apply_options
from vsemb.errors import InvalidArgumentError


def find_boxes(arguments) -> str:
    """Find boxes.

    Small ones, too.
    """
    return f"boxes of {arguments.count}"


BOXES = Mode(find_boxes, lambda parser: parser.add_argument("--min-size", type=int, default=3), uses=("count",))
WORDS = Mode(lambda arguments: "words", lambda parser: parser.add_argument("--font"))


@pytest.fixture
def parser(monkeypatch) -> argparse.ArgumentParser:
    """A command with the modes `boxes` and `some-words`, and an option of its own, which `boxes` reads too."""
    modes = {"boxes": BOXES, "words": WORDS}
    monkeypatch.setattr(registry, "entries", lambda name, command: {"boxes": "boxes", "some-words": "words"})
    monkeypatch.setattr(registry, "load", modes.__getitem__)
    parser = argparse.ArgumentParser()
    parser.add_argument("image")

    def own(to) -> None:
        to.add_argument("--count", type=int, default=5)
        to.add_argument("--colour", action="store_true")

    Modes(parser, "find", Mode(lambda arguments, *given: given, own))
    return parser


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("", ""),
        ("--count 3 --colour", ""),
        ("--boxes --min-size 4 --count 2", "boxes"),
        ("--some-words", "some-words"),
    ],
)
def test_a_mode_takes_its_options_and_those_that_it_uses(parser, given: str, chosen: str) -> None:
    arguments = parser.parse_args(["x.png", *given.split()])
    assert arguments.modes.chosen(arguments) == chosen
    arguments.modes.check(arguments, chosen)


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
        arguments.modes.check(arguments, arguments.modes.chosen(arguments))
    assert said in str(error.value)


def test_an_option_at_its_default_is_no_option(parser) -> None:
    arguments = parser.parse_args(["x.png", "--some-words", "--count", "5"])
    arguments.modes.check(arguments, "some-words")


def test_the_mode_that_was_asked_for_runs(parser) -> None:
    for given, result in (("", ("x",)), ("--boxes --count 2", "boxes of 2")):
        arguments = parser.parse_args(["x.png", *given.split()])
        assert arguments.modes.run(arguments, *(["x"] if not given else [])) == result


def test_a_command_that_needs_a_mode_names_them(monkeypatch) -> None:
    monkeypatch.setattr(registry, "entries", lambda name, command: {"boxes": "boxes"})
    monkeypatch.setattr(registry, "load", {"boxes": BOXES}.__getitem__)
    parser = argparse.ArgumentParser()
    Modes(parser, "find")
    arguments = parser.parse_args([])
    with pytest.raises(InvalidArgumentError, match="told what to do; got nothing. Add --boxes."):
        arguments.modes.run(arguments)


def test_help_says_what_modes_say(parser) -> None:
    modes = parser.get_default("modes")
    assert modes.explained == "\n\n--boxes:\nSmall ones, too."
    assert "find boxes" in parser.format_help()


def test_systems_add_options_and_keywords(monkeypatch) -> None:
    def options(name: str, keywords) -> Options:
        def configure(parser) -> None:
            parser.add_argument(f"--{name}")

        return Options(configure, keywords)

    modules = {
        "a": options("first", lambda arguments, run: {"extras": (arguments.first, run)}),
        "b": options("second", lambda arguments, run: {"extras": (arguments.second,), "limit": 3}),
        "c": options("third", lambda arguments, run: {}),
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
