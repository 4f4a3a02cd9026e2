"""Acts: signatures that are read without their heavy imports, and arguments that are checked by hints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb import registry
from vsemb.acts import Fields, Option, act, additions, chosen, signature_of
from vsemb.errors import InvalidArgumentError
from vsemb.parts import Count, Part, Positive, Share

if TYPE_CHECKING:
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class Shape(Part, family="shape of tests"):
    """A shape."""


@dataclass(frozen=True)
class Round(Shape, kind="round"):
    """A circle.

    Attributes:
        radius: its radius.
        filled: whether it is filled.
    """

    radius: Positive = 1.0
    filled: bool = False


@dataclass(frozen=True)
class Long(Shape, kind="long"):
    """A line.

    Attributes:
        length: its length.
    """

    length: Count = 2


@act
def draw(
    run: Run | str | os.PathLike[str],
    names: Sequence[str] = (),
    *,
    shape: Shape | str = "round",
    count: Count | Literal[True] | None = None,
    share: Share = 0.5,
    how: Literal["fast", "well"] = "fast",
    weights: Mapping[str, Count] | None = None,
    quick: bool = False,
    **options: Annotated[Any, Fields("shape of tests", by="shape")],
) -> tuple[Any, ...]:
    """Draw a shape.

    It is drawn once.

    Args:
        run: a run, or its directory.
        names: names to write beside it,
            in order.
        shape: the shape.
        count: how often.
        share: a share.
        how: a manner.
        weights: weights by name.
        quick: whether it is quick.
        **options: fields of the shape.

    Returns:
        What was given.
    """
    return run, names, chosen(Shape, "shape", shape, options), count, share, how, weights, quick


def test_a_signature_is_read_with_its_texts() -> None:
    signature = signature_of(draw)
    assert (signature.summary, signature.description) == ("Draw a shape.", "It is drawn once.")
    assert list(signature.parameters) == ["run", "names", "shape", "count", "share", "how", "weights", "quick"]
    assert signature.parameters["names"].explanation == "names to write beside it, in order."
    assert signature.options == Fields("shape of tests", by="shape")
    by_place = [name for name, parameter in signature.parameters.items() if parameter.by_place]
    assert by_place == ["run"]


def test_values_reach_the_function_as_its_types() -> None:
    found = draw(Path("runs/x"), ["a"], shape="long", length=np.int64(3), count=True, share=np.float32(0.25))
    assert found == (Path("runs/x"), ("a",), Long(3), True, 0.25, "fast", None, False)
    assert type(found[4]) is float and type(found[2].length) is int
    assert draw("x", shape=Round(2))[2] == Round(2.0) == draw("x", radius=2)[2]


def test_an_object_is_known_by_the_name_of_its_class() -> None:
    """Classes that are imported for type checkers alone, and classes below them."""
    run = type("Run", (), {"__module__": "vsemb.runs.run"})()
    below = type("Mine", (type(run),), {})()
    assert draw(run)[0] is run and draw(below)[0] is below
    for other in (type("Runner", (), {}), type("Run", (), {"__module__": "wandb"})):
        with raises_argument("run"):
            draw(other())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"run": 3}, "run"),
        ({"names": "abc"}, "names"),
        ({"names": [1]}, "names"),
        ({"count": 0}, "count"),
        ({"count": False}, "count"),
        ({"count": "3"}, "count"),
        ({"count": 2.5}, "count"),
        ({"share": 1}, "share"),
        ({"share": float("nan")}, "share"),
        ({"share": None}, "share"),
        ({"how": "slow"}, "how"),
        ({"how": 1}, "how"),
        ({"weights": {"a": 0}}, "a"),
        ({"weights": ["a"]}, "weights"),
        ({"quick": 1}, "quick"),
        ({"shape": "square"}, "shape"),
        ({"shape": Long(), "length": 3}, "length"),
        ({"length": 3}, "length"),
        ({"radius": -1}, "radius"),
        ({"radios": 1}, "argument"),
        ({"run": ""}, "run"),
        ({"weights": {3: 1}}, "weights"),
    ],
    ids=str,
)
def test_values_of_other_types_and_ranges_are_refused(arguments: dict[str, Any], name: str) -> None:
    with raises_argument(name):
        draw(**({"run": "x"} | arguments))


def test_a_typo_names_the_nearest_argument() -> None:
    with pytest.raises(InvalidArgumentError, match="Did you mean 'radius'"):
        draw("x", radios=1)

    @act
    def plain(*, colour: str = "red") -> str:
        """Return the colour."""
        return colour

    with pytest.raises(InvalidArgumentError, match="Did you mean 'colour'"):
        plain(color="blue")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="Did you mean 'count'"):
        draw("x", cuont=1)
    assert plain(colour="blue") == "blue"


def test_a_missing_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="run"):
        draw()


def test_options_find_the_parts_that_they_belong_to() -> None:
    assert additions(Shape, {}) == []
    assert additions(Shape, {"length": 3}) == [Long(3)]
    assert additions(Shape, {"length": 3, "filled": True}) == [Round(filled=True), Long(3)]
    with raises_argument("option"):
        additions(Shape, {"lengths": 3})
    with raises_argument("length"):
        additions(Shape, {"length": 0})


def test_options_without_a_flag_can_be_marked() -> None:
    @act
    def write(*, out: Annotated[str, Option(by_place=True)]) -> str:
        """Write."""
        return out

    assert signature_of(write).parameters["out"].by_place
    assert write(out="x") == "x"


def acts_of_commands() -> Iterator[tuple[str, registry.Command]]:
    from vsemb.cli.__main__ import commands

    for name, command in commands().items():
        if isinstance(command, registry.Command):
            yield name, command


@pytest.mark.parametrize(
    ("name", "command"), [*acts_of_commands()], ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_act_explains_its_arguments(name: str, command: registry.Command) -> None:
    signature = signature_of(registry.load(command.act))
    assert signature.summary.endswith(".")
    missing = [each for each, parameter in signature.parameters.items() if not parameter.explanation]
    assert missing == []
    if signature.options is not None:
        # A name that several parts share has one type, since the command line reads it once.
        for field in signature.options.hints():
            parts = [part for part in signature.options.parts.values() if field in getattr(part, "__annotations__", {})]
            assert len({str(part.__annotations__[field]) for part in parts}) <= 1, field
