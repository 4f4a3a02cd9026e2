"""Parts: what they take, how they are read, set and explained; and what every registered part must have."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pytest

from tests.raising import raises_argument
from vsemb import recipes, registry
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.parts import (
    Bytes,
    Count,
    Finite,
    NonNegative,
    Part,
    Positive,
    Probability,
    Range,
    Seed,
    Share,
    Size,
    Typed,
    between,
    bytes_size,
    checked_value,
    explanations,
    fields_of,
    read_bytes_size,
    read_hint,
    rebuilt,
    walk,
)
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Recipe

RECIPES = [(name, variant) for name in recipes.names() for variant in recipes.variants(name)]
PARTS = [(family, kind) for system in registry.systems() for family, kinds in system.parts.items() for kind in kinds]


@dataclass(frozen=True)
class Shape(Part, family="test shape"):
    """A shape; base of the family.

    Attributes:
        colour: of the shape,
            said in two lines.
    """

    colour: str | None = None


@dataclass(frozen=True)
class Circle(Shape, kind="circle"):
    """A circle.

    Attributes:
        radius: of the circle.
    """

    radius: Positive = 1.0


@dataclass(frozen=True)
class Polygon(Shape, kind="polygon"):
    """A polygon.

    Attributes:
        corners: number of corners.
        inner: a shape inside.
    """

    corners: Count = 3
    inner: Shape = field(default_factory=Circle)

    def check(self) -> None:
        if self.corners < 3:
            raise InvalidArgumentError("corners must be >= 3.")


@dataclass(frozen=True)
class Options(Part):
    """A record.

    Attributes:
        closed: whether it is.
        size: of it.
        mode: how.
        share: of it.
    """

    closed: bool = False
    size: Size | None = None
    mode: Literal["slow", "fast"] = "slow"
    share: Share = 0.5


@dataclass(frozen=True)
class Drawing(Part):
    """A drawing.

    Attributes:
        shape: what is drawn.
        frame: what is around it.
        options: the rest.
    """

    shape: Shape = field(default_factory=Circle)
    frame: Shape | None = None
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Needed(Part):
    """A record with a field that has no default.

    Attributes:
        width: of it.
    """

    width: Count


# Checks of one part.


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [
        (Count, [1, 10**9], [0, -1]),
        (Size, [1, 65536], [0, 65537]),
        (Share, [0.0, 0.999], [1.0, -0.1, float("nan")]),
        (Probability, [0.0, 1.0], [1.01, -0.1, float("nan")]),
        (Positive, [1e-30, 1e30], [0.0, -1.0, float("inf"), float("nan")]),
        (NonNegative, [0.0, 1e30], [-1e-9, float("inf"), float("nan")]),
        (Finite, [-1e30, 0.0], [float("inf"), float("-inf"), float("nan")]),
        (Seed, [0, 10**9], [-1, 10**9 + 1]),
    ],
)
def test_ranges(hint: Any, inside: list[float], outside: list[float]) -> None:
    (limits,) = (each for each in get_args(hint) if isinstance(each, Range))
    assert all(map(limits.holds, inside)) and not any(map(limits.holds, outside))
    assert "number" in limits.allowed or "integer" in limits.allowed
    assert between(2, 3).holds(2) and not between(2, 3).holds(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Circle(radius=0.0), r"`radius` must be .*> 0.*; got 0\.0"),
        (lambda: Circle(radius="wide"), "`radius` must be .*; got 'wide'"),  # type: ignore[arg-type]
        (lambda: Circle(radius=True), "`radius` must be .*; got True"),
        (lambda: Polygon(corners=2.0), "`corners` must be .*; got 2.0"),  # type: ignore[arg-type]
        (lambda: Polygon(corners=True), "`corners` must be .*; got True"),
        (lambda: Polygon(corners=2), "corners must be >= 3"),
        (lambda: Polygon(inner=Options()), "inner"),  # type: ignore[arg-type]
        (lambda: Options(mode="fats"), "Did you mean 'fast'"),  # type: ignore[arg-type]
        (lambda: Options(closed=1), "`closed` must be .*bool.*; got 1"),  # type: ignore[arg-type]
        (lambda: Options(size=0), "`size` must be .*or null.*; got 0"),
    ],
)
def test_a_part_checks_itself_when_it_is_made(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_an_integer_where_a_float_is_wanted() -> None:
    radius = Circle(radius=2).radius
    assert radius == 2.0 and isinstance(radius, float)


def test_parts_are_frozen_values() -> None:
    assert Circle() == Circle(radius=1) != Circle(radius=2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Circle().radius = 3.0  # type: ignore[misc]


# JSON.


def test_json_round_trip_by_kind() -> None:
    drawing = Drawing(Polygon(corners=5, inner=Polygon(colour="red")), options=Options(size=3))
    plain = json.loads(json.dumps(drawing.to_json()))
    assert plain["shape"]["kind"] == "polygon" and plain["shape"]["inner"]["kind"] == "polygon"
    assert plain["frame"] is None and "kind" not in plain["options"]
    assert Drawing.from_json(plain) == drawing
    # What is missing has its default.
    assert Drawing.from_json({"shape": {"kind": "polygon"}}) == Drawing(Polygon())


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"shape": {"kind": "square"}}, "'square'"),
        ({"shape": {"kind": "polygn"}}, "Did you mean 'polygon'"),
        ({"shape": {"radius": 2.0}}, "'kind'"),
        ({"shape": {"kind": 5}}, "'kind'"),
        ({"shape": {"kind": "circle", "corners": 5}}, "one of shape.colour, shape.radius.*shape.corners"),
        ({"shape": {"kind": "circle", "radius": -1}}, "`shape.radius` must be a finite number > 0; got -1"),
        ({"shape": 5}, "`shape` must be .*; got 5"),
        ({"shape": None}, "`shape` must be .*; got None"),
        ({"colour": "red"}, "colour"),
        ([], "Drawing"),
        (None, "Drawing"),
    ],
)
def test_what_is_no_such_part_is_refused(plain: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Drawing.from_json(plain)


def test_a_field_without_a_default_is_needed() -> None:
    assert Needed.from_json({"width": 2}) == Needed(2)
    with pytest.raises(DataError, match="'width'"):
        Needed.from_json({})


@pytest.mark.parametrize(("name", "variant"), RECIPES)
def test_json_round_trip_of_every_recipe(name: str, variant: str) -> None:
    recipe = recipes.get(name, variant)
    assert (recipe.name, recipe.variant) == (name, variant) and recipe.paper
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    # A choice by its kind alone is one with its defaults, so every part of the recipe can be chosen.
    for part in walk(recipe):
        if part.family is not None:
            assert part.kind in registry.kinds(part.family)


# Overrides.


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("shape=polygon", Drawing(Polygon())),
        ("shape.radius=2", Drawing(Circle(radius=2.0))),
        (" shape.radius =2e-1", Drawing(Circle(radius=0.2))),
        ("shape.colour=red", Drawing(Circle(colour="red"))),
        ('shape.colour="red"', Drawing(Circle(colour="red"))),
        # Fields of text keep what reads as a number: a fingerprint may be all digits, or 12e4567.
        ("shape.colour=12e4", Drawing(Circle(colour="12e4"))),
        ("shape.colour=1234567812345678", Drawing(Circle(colour="1234567812345678"))),
        ("shape.colour=/data/a=b.txt", Drawing(Circle(colour="/data/a=b.txt"))),
        ("shape.colour=null", Drawing()),
        ("shape.colour=None", Drawing()),
        ("frame=circle", Drawing(frame=Circle())),
        ("frame=null", Drawing()),
        ("options.closed=True", Drawing(options=Options(closed=True))),
        ("options.size=7", Drawing(options=Options(size=7))),
        ("options.mode=fast", Drawing(options=Options(mode="fast"))),
        ("options.share=0", Drawing(options=Options(share=0.0))),
        # The end of a path is enough, if one field has it.
        ("radius=2", Drawing(Circle(radius=2.0))),
        ("shape_radius=2", Drawing(Circle(radius=2.0))),
    ],
)
def test_overrides(assignment: str, expected: Drawing) -> None:
    given = Drawing()
    assert given.with_overrides([assignment]) == expected
    assert given == Drawing()


def test_ends_of_paths() -> None:
    given = Drawing(frame=Circle())
    with raises_argument("radius"):
        given.with_overrides(["radius=2"])
    assert given.with_overrides(["radius=2", "frame=null"]) == Drawing(Circle(radius=2.0))
    assert given.with_overrides(["inner.radius=2", "shape=polygon"]).shape == Polygon(inner=Circle(radius=2.0))
    assert given.with_overrides(["frame.radius=2"]) == Drawing(frame=Circle(radius=2.0))
    with pytest.raises(InvalidArgumentError, match="Did you mean 'backbone'"):
        given.with_overrides(["backbon=2"], ["backbone"])


def test_typed_text_is_parsed_by_the_type() -> None:
    for text, hint, expected in (
        ("3", int | None, 3),
        ("3", str, "3"),
        ("null", int | None, None),
        ("2KiB", Bytes, 2048),
    ):
        assert checked_value(read_hint(hint), Typed(text), "field") == expected
    with raises_argument("field"):
        checked_value(read_hint(int | None), "3", "field")


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("2KiB", 2048), ("3mib", 3 * 2**20), ("1GiB", 2**30)])
def test_sizes_in_bytes(text: str, number: int) -> None:
    assert checked_value(read_hint(Bytes), text, "size") == read_bytes_size(text) == number
    assert read_bytes_size(bytes_size(number)) == number


@pytest.mark.parametrize("text", ["", "MiB", "1.5MiB", "-1", "1TiB", "1B", "1KB", "0"])
def test_no_sizes_in_bytes(text: str) -> None:
    with raises_argument("size"):
        checked_value(read_hint(Bytes), text, "size")


def test_literals_beside_a_type() -> None:
    read = read_hint(str | Literal[True] | None)
    assert [checked_value(read, value, "field") for value in ("text", True, None)] == ["text", True, None]
    for value in (False, 1):
        with raises_argument("field"):
            checked_value(read, value, "field")


def test_choosing_a_part_resets_its_fields() -> None:
    given = Drawing(Polygon(corners=7, colour="red"))
    assert given.with_overrides(["shape=polygon"]) == Drawing(Polygon())
    assert given.with_overrides(["shape=circle"]) == Drawing(Circle())


def test_choices_come_before_fields_and_the_last_assignment_wins() -> None:
    changed = Drawing().with_overrides(["shape.inner.radius=2", "shape.inner=circle", "shape=polygon"])
    assert changed == Drawing(Polygon(inner=Circle(radius=2.0)))
    assert Drawing().with_overrides(["options.size=1", "options.size=2"]).options.size == 2
    assert Drawing().with_overrides([]) == Drawing()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("shape.radus=5", "Did you mean 'shape.radius'"),
        ("shap.radius=5", "Did you mean 'shape.radius'"),
        ("radus=5", "Did you mean 'radius'"),
        ("shape.corners=5", "one of shape.colour, shape.radius"),
        ("shape=circl", "Did you mean 'circle'"),
        ("shape=null", "`shape` must be one of circle, polygon; got 'null'"),
        ("shape.radius.more=5", "it has no fields"),
        ("frame.colour=red", "it has no fields"),
        ("options=fast", "options.closed"),
        ("=5", "one of"),
        ("shape.radius", "field=value"),
        ("shape.radius=wide", "`shape.radius` must be a finite number > 0; got 'wide'"),
        ("shape.radius=true", "shape.radius"),
        ("shape.radius=NaN", "finite"),
        ("shape.radius=Infinity", "finite"),
        ("options.size=1.5", "`options.size` must be an integer from 1 to 65536 or null; got 1.5"),
        ("options.size=true", "`options.size` must be an integer from 1 to 65536 or null; got True"),
        ("options.size=[1]", "`options.size` must be an integer from 1 to 65536 or null; got [1]"),
        ("options.share=null", "`options.share` must be a number in [0, 1); got None"),
        ("options.closed=1", "bool"),
        ("options.mode=fats", "Did you mean 'fast'"),
    ],
)
def test_bad_overrides(assignment: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Drawing().with_overrides([assignment])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_walk_and_rebuilt() -> None:
    drawing = Drawing(Polygon(inner=Polygon(inner=Circle(radius=3.0))), frame=Circle())
    assert [part.kind for part in walk(drawing)] == [None, "polygon", "polygon", "circle", "circle", None]

    def wider(part: Part) -> Part:
        return dataclasses.replace(part, radius=9.0) if isinstance(part, Circle) else part

    changed = rebuilt(drawing, wider)
    assert changed == Drawing(Polygon(inner=Polygon(inner=Circle(radius=9.0))), frame=Circle(radius=9.0))
    assert drawing.frame == Circle()


def test_explanations_come_from_the_docstrings_of_a_class_and_its_bases() -> None:
    assert explanations(Circle) == {"colour": "of the shape, said in two lines.", "radius": "of the circle."}


# What every registered part must have.


@pytest.mark.parametrize(("family", "kind"), PARTS)
def test_every_registered_part(family: str, kind: str) -> None:
    cls = registry.find_part(family, kind, family)
    assert issubclass(cls, Part)
    assert (cls.family, cls.kind) == (family, kind)
    modules = [system.parts[family][kind] for system in registry.systems() if kind in system.parts.get(family, {})]
    assert modules == [cls.__module__], "declared once, where it stands"
    for name, text in explanations(cls).items():
        assert text, f"{cls.__name__}.{name} has no line of explanation"
    for name, hint in fields_of(cls).items():
        read = read_hint(hint)
        # Numbers without a range take infinity and NaN.
        if {int, float} & set(read.accepted) and not read.literals:
            assert read.range is not None, f"{cls.__name__}.{name} has no range"
        assert read.part is None or read.part.family is not None or dataclasses.is_dataclass(read.part)
    try:
        made = cls()
    except InvalidArgumentError as error:
        # What has no default says which field it is.
        assert error.argument is not None and error.argument.split(".")[-1] in fields_of(cls)
    else:
        assert made == cls.from_json({"kind": kind})


def test_two_classes_cannot_have_one_kind() -> None:
    with raises_argument("kind"):

        @dataclass(frozen=True)
        class Another(Shape, kind="circle"):
            """Another."""

    with raises_argument("kind"):

        @dataclass(frozen=True)
        class Lost(Part, kind="lost"):
            """Of no family."""


#: What used to pass without being read.
NOT_THERE = [
    (["optimizer.schedule=step"], "optimizer.schedule.warmup_epochs"),
    ([], "optimizer.schedule.warmup_epochs"),
    ([], "optimizer.warmup_epochs"),
    (["optimizer.schedule=cosine"], "optimizer.schedule.every"),
    ([], "optimizer.decay_steps"),
    (["optimizer=adam"], "optimizer.weight_decay"),
    (["optimizer=sgd"], "optimizer.sparse_embedding_updates"),
    (["optimizer=rmsprop"], "optimizer.momentum"),
    (["loss=ranking"], "loss.label_smoothing"),
    (["loss=ranking"], "loss.temperature"),
    (["loss=sigmoid"], "loss.margin"),
    (["loss=infonce"], "loss.negatives"),
    (["loss.negatives=all"], "loss.negatives.warmup_epochs"),
    (["text.encoder=linear"], "text.encoder.bag_dropout"),
    (["text.encoder=linear"], "text.encoder.units"),
    ([], "text.bag"),
    (["text.encoder=recurrent"], "text.encoder.layers"),
    (["text.encoder=recurrent"], "text.encoder.heads"),
    (["text.encoder=transformer"], "text.encoder.cell"),
    (["text.encoder=transformer"], "text.encoder.slots"),
    ([], "text.encoder.slots"),
    (["text.tokenizer=characters"], "text.tokenizer.min_count"),
    ([], "image.backbone"),
    (["image=pixels"], "image.standardize"),
    (["image.projection=none", "embedding_dim=null"], "image.projection.use_bias"),
    ([], "caption"),
    ([], "reversed"),
]


@pytest.mark.parametrize(("choices", "path"), NOT_THERE)
def test_a_field_that_is_not_read_does_not_exist(choices: list[str], path: str) -> None:
    recipe = Retrieval().with_overrides(choices)
    with pytest.raises(InvalidArgumentError, match=f"{path.replace('.', '[.]')}|it has no fields"):
        recipe.with_overrides([f"{path}=1"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["image=pixels", "initialization=cca"],
            "`initialization` must be .*unless features pass an affine map.*; got 'cca'",
        ),
        (["image.projection=none", "embedding_dim=null", "initialization=cca"], "unless features pass an affine map"),
        (["image.projection=pooled-map", "initialization=cca"], "unless features pass an affine map"),
        (["loss.image_weight=0", "loss.text_weight=0"], "image_weight, text_weight.*one of them > 0"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_any_work(changes: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Retrieval().with_overrides(changes)


def of_systems_there(*cases: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Returns the cases whose recipe, their first entry, is there."""
    return [case for case in cases if case[0] in recipes.names()]


@pytest.mark.parametrize(
    ("name", "path", "low", "high"),
    of_systems_there(
        ("multimodal-rnn", "beam", 1, 1024),
        ("multimodal-rnn", "max_words", 1, 512),
        ("sc-nlm", "context", 1, 64),
        ("sc-nlm", "structure", 0, 64),
        ("sc-nlm", "beam", 1, 1024),
        ("sc-nlm", "candidates", 1, 65536),
    ),
)
def test_limits_of_what_would_not_fit_into_memory(name: str, path: str, low: int, high: int) -> None:
    (part,) = (part for part in walk(recipes.get(name)) if path in fields_of(type(part)))
    for value in (low, high):
        assert getattr(dataclasses.replace(part, **{path: value}), path) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidArgumentError, match=f"{path}.*from {low} to {high}"):
            dataclasses.replace(part, **{path: value})
