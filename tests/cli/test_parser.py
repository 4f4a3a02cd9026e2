"""Parsers that are made from acts: forms of arguments, values by their types, and what only was given."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from tests.raising import raises_argument
from tests.test_acts import Shape, draw
from vsemb import registry
from vsemb.acts import Option, act
from vsemb.cli import parser as parsers
from vsemb.errors import InvalidArgumentError
from vsemb.parts import Count, Range


@act
def everything(
    first: str,
    more: Annotated[Sequence[str], Option(by_place=True)] = (),
    *,
    out: str,
    k: Count = 10,
    numbers: Sequence[int] = (),
    plus: Annotated[Sequence[str], Option(repeated=True)] = (),
    maybe: bool | None = None,
    fold: bool = True,
    few: int | Literal[True] | None = None,
    policy: int | Literal["latest", "all"] = "latest",
    how: Literal["fast", "well"] = "fast",
    labels: Mapping[str, int] | None = None,
    size: Annotated[int, Range("a size", lambda value: value > 0, lambda text: int(text.removesuffix("K")) * 1000)] = 1,
    from_: str | None = None,
    report: object = None,
    **values: Any,
) -> dict[str, Any]:
    """Do everything.

    Args:
        first: the first.
        more: others.
        out: file to write.
        k: results.
        numbers: numbers.
        plus: words.
        maybe: perhaps.
        fold: fold it.
        few: some, 50 % of them.
        policy: which ones.
        how: manner.
        labels: labels.
        size: size.
        from_: source.
        report: a function.
        **values: fields.
    """
    return dict(locals())


def parser_of(function: Any, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    monkeypatch.setattr(registry, "load", lambda reference: function)
    return parsers.parser_of("try", registry.Command("tests:act", "try it", ("vsemb try x",)))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("", {}),
        ("b c", {"more": ["b", "c"]}),
        ("-k 3", {"k": 3}),
        ("-k -3", {"k": -3}),
        ("--numbers -1 -2", {"numbers": [-1, -2]}),
        ("--numbers 1 2 --numbers 3", {"numbers": [1, 2, 3]}),
        ("--plus red --plus blue", {"plus": ["red", "blue"]}),
        ("--maybe", {"maybe": True}),
        ("--no-maybe", {"maybe": False}),
        ("--no-fold", {"fold": False}),
        ("--few", {"few": True}),
        ("--few 3", {"few": 3}),
        ("--policy all", {"policy": "all"}),
        ("--policy 3", {"policy": 3}),
        ("--how well", {"how": "well"}),
        ("--labels a=1 --labels b=2", {"labels": {"a": 1, "b": 2}}),
        ("--size 3K", {"size": 3000}),
        ("--from x", {"from_": "x"}),
        ("--set a.b=1", {"set": {"a.b": "1"}}),
    ],
)
def test_words_become_values_of_the_types(words: str, given: dict[str, Any], monkeypatch) -> None:
    parser = parser_of(everything, monkeypatch)
    found = vars(parser.parse_args_anywhere(["a", *words.split(), "--out", "o"]))
    assert found == {"first": "a", "out": "o", **given}
    if given.get("k") != -3:
        called = parsers.call(everything, argparse.Namespace(**found, json=None, quiet=False))
        assert called["first"] == "a" and called["k"] == given.get("k", 10)


@pytest.mark.parametrize(
    "words",
    [
        "a",
        "--out o",
        "a --out o -k x",
        "a --out o --numbers x",
        "a --out o --how slow",
        "a --out o --labels a",
        "a --out o --labels a=x",
        "a --out o --policy some",
        "a --out o --size many",
        "a --out o --fold",
        "a --out o --report x",
        "a --out o --num 3",
        "a --out o --set a",
        "a --out o --labels a=1 --labels a=2",
        "a --out o --plus -red",
    ],
)
def test_wrong_usage_ends_with_2(words: str, monkeypatch, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        parser_of(everything, monkeypatch).parse_args_anywhere(words.split())
    assert ended.value.code == 2 and "usage: vsemb try" in capsys.readouterr().err


def test_help_says_what_the_docstring_says(monkeypatch) -> None:
    text = parser_of(everything, monkeypatch).format_help()
    assert text.startswith("usage: vsemb try --out OUT FIRST [MORE ...] [options]\n\nDo everything.")
    for shown in ("results (10)", "do not fold it", "some, 50 % of them", "--size N", "{fast,well}", "vsemb try x"):
        assert shown in text, shown
    assert "report" not in text


def test_fields_of_parts_are_options_in_groups(monkeypatch) -> None:
    parser = parser_of(draw, monkeypatch)
    text = parser.format_help()
    assert "the shape; one of round, long" in " ".join(text.split())
    assert text.index("with --shape round:\n  A circle.") < text.index("--radius X") < text.index("with --shape long:")
    found = parser.parse_args(["x", "--shape", "long", "--length", "3"])
    assert parsers.call(draw, found)[2].length == 3
    with pytest.raises(InvalidArgumentError):
        parsers.call(draw, parser.parse_args(["x", "--length", "3"]))


def test_a_typo_names_the_nearest_option(monkeypatch, capsys) -> None:
    with pytest.raises(SystemExit):
        parser_of(everything, monkeypatch).parse_args_anywhere(["a", "--out", "o", "--number", "3"])
    assert "Did you mean --numbers?" in capsys.readouterr().err


def test_set_takes_fields_alone() -> None:
    with raises_argument("set"):
        parsers.call(everything, argparse.Namespace(first="a", out="o", set={"out": "other"}))


def test_a_field_that_means_something_else_in_another_part_is_explained_there(monkeypatch) -> None:
    @dataclass(frozen=True)
    class Square(Shape, kind="square"):
        """A square.

        Attributes:
            length: length of a side.
            filled: whether it is filled.
        """

        length: Count = 7
        filled: bool = False

    try:
        text = " ".join(parser_of(draw, monkeypatch).format_help().split())
    finally:
        del registry.CLASSES["shape of tests", "square"]
    assert "--length: length of a side (7)" in text and "--filled: see round" in text


@pytest.mark.parametrize("json", ["run/run.json", "run/new.json", "vectors.json", "contracts/model.json", "dog.png"])
def test_json_is_not_written_into_what_a_command_is_given(json: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("run", "model", "contracts"):
        (tmp_path / folder).mkdir()
    for file in ("run/recipe.json", "dog.png"):
        (tmp_path / file).write_text("{}")
    given = argparse.Namespace(run="run", out="vectors.npy", model={"pets": "model"}, images=[["dog.png"]], split="val")
    with raises_argument("json"):
        parsers.check_json_file(argparse.Namespace(json=json, **vars(given)))
    given.text = "a circle " * 60
    for free in ("metrics.json", "val", "contracts/other.json", "model.json"):
        parsers.check_json_file(argparse.Namespace(json=free, **vars(given)))


def test_json_is_not_written_over_a_manifest(tmp_path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"format": "vsemb-dataset"}')
    with raises_argument("json"):
        parsers.check_json_file(argparse.Namespace(json=str(manifest), split="val"))
    manifest.write_text('{"metrics": 1}')
    parsers.check_json_file(argparse.Namespace(json=str(manifest), split="val"))


def test_json_is_not_written_over_other_files(tmp_path) -> None:
    image = tmp_path / "dog.png"
    image.write_bytes(b"")
    other = f"{tmp_path}/../{tmp_path.name}/dog.png"
    for given in ({"images": [str(image)]}, {"run": str(image)}, {"out": other}, {"out": "new.png"}):
        json = "./new.png" if given == {"out": "new.png"} else str(image)
        with raises_argument("json"):
            parsers.check_json_file(argparse.Namespace(json=json, **given))
    for json in (None, "-", str(tmp_path / "found.json")):
        parsers.check_json_file(argparse.Namespace(json=json, out=str(image), split="val"))
