"""Fine-grained scenes: images of flowers in 60 classes that differ only in details of their parts.

A class is a combination of petal colour, number, shape and marking, centre colour and size, and leaf shape. Every image
has ten descriptions, each of some of the parts, and every class an attribute vector. The seed determines everything.
The data replaces the birds and flowers of Reed et al. 2016. Splits have disjoint classes.

Order of the file: classes and sampling, drawing, descriptions, records. Coordinates and lengths are in units of the
image's side, x to the right and y downwards. All randomness comes from `random.Random.random`, see
`vsemb.data.synthetic.world`.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from vsemb.data.records import ImageRecord
from vsemb.data.synthetic.render import SUPERSAMPLING, Colour, Point, pixel_box, placed, png, tinted
from vsemb.data.synthetic.world import pick, requested, shuffled, whole
from vsemb.systems.zero_shot.attributes import ClassAttributes

VERSION = 1
"""Version of the generator; it increases when a seed gives other images or descriptions."""

PARTS: Mapping[str, tuple[str, ...]] = {
    "petal colour": ("white", "yellow", "orange", "red", "pink", "purple", "blue", "burgundy"),
    "petal number": ("three", "four", "five", "six", "eight"),
    "petal shape": ("round", "pointed", "narrow", "heart-shaped"),
    "petal marking": ("plain", "spotted", "striped", "edged"),
    "centre colour": ("yellow", "white", "black", "green"),
    "centre size": ("small", "large"),
    "leaf shape": ("oval", "jagged", "grass-like", "lobed"),
}
"""Parts of a flower and their values, which define the classes."""

CLASSES: Mapping[str, int] = {"train": 40, "val": 8, "test": 12}
"""Number of classes per split."""

BACKGROUNDS: tuple[tuple[int, int, int], ...] = (
    (44, 66, 46),
    (92, 96, 64),
    (124, 126, 128),
    (104, 84, 66),
    (66, 82, 98),
    (150, 166, 182),
    (40, 36, 40),
    (176, 162, 140),
)
"""Background colours, drawn independently of the class."""

UNSEEN_COLOURS = 4
"""Number of petal colours in val, and in test."""

MIN_DIFFERENCE = 2
"""Minimum number of parts in which two classes differ."""

Parts = Mapping[str, str]
"""Part -> value, for every part of `PARTS`."""


@dataclass(frozen=True)
class Leaf:
    """A leaf: its position on the stem, its direction (radians, clockwise) and its length."""

    x: float
    y: float
    angle: float
    length: float


@dataclass(frozen=True)
class Flower:
    """Geometry and colours of one flower.

    Args:
        parts: part -> value; replace one with `dataclasses.replace` for the same image of another class.
        x, y: centre of the head.
        radius: radius of the head.
        angle: angle of the first petal, in radians.
        turns, stretches: deviation of each of eight petals in angle (share of the angle between two petals) and length
            (factor).
        tints: brightness of petals, centre and leaves, three factors each for red, green and blue.
        foot: x of the stem at the lower edge of the image.
        leaves: two leaves, possibly out of view.
        background: index into `BACKGROUNDS`.
        blurs: (x, y, radius, brightness) of dim discs behind the flower.
    """

    parts: Parts
    x: float
    y: float
    radius: float
    angle: float
    turns: tuple[float, ...]
    stretches: tuple[float, ...]
    tints: tuple[tuple[float, float, float], ...]
    foot: float
    leaves: tuple[Leaf, ...]
    background: int
    blurs: tuple[tuple[float, float, float, float], ...]

    @property
    def petals(self) -> int:
        """Number of petals."""
        return {"three": 3, "four": 4, "five": 5, "six": 6, "eight": 8}[self.parts["petal number"]]


def difference(one: Parts, other: Parts) -> int:
    """Return the number of parts in which two classes differ."""
    return sum(one[part] != other[part] for part in PARTS)


def classes(seed: int = 0) -> dict[str, dict[str, dict[str, str]]]:
    """Return the classes of each split: 40 in train, 8 in val, 12 in test.

    Two classes differ in at least two parts. In train, numbers of classes with each value of a part differ by at most
    1. Val and test have four petal colours each, so colour is not sufficient for recognition. Petals and centre have
    different colours.

    Args:
        seed: an integer; determines the combinations of parts and their splits.

    Returns:
        split -> class name -> part -> value. The names are "flower 01" to "flower 60".

    Example:

    >>> dealt = classes()
    >>> [len(dealt[split]) for split in ("train", "val", "test")]
    [40, 8, 12]
    >>> dealt["train"]["flower 01"]["petal number"] in PARTS["petal number"]
    True
    """
    rng = random.Random(f"{seed}/flowers/classes")
    drawn: list[dict[str, str]] = []
    dealt = {}
    for split, count in CLASSES.items():
        while not (group := _drawn(rng, count, split != "train", drawn)):
            pass
        dealt[split] = {f"flower {len(drawn) + 1 + place:02d}": parts for place, parts in enumerate(group)}
        drawn += group
    return dealt


def _drawn(rng: random.Random, count: int, few_colours: bool, others: list[dict[str, str]]) -> list[dict[str, str]]:
    """Draw the parts of `count` classes; an empty list if two classes are too similar."""
    columns = {}
    for part, values in PARTS.items():
        pack = shuffled(rng, values)
        if few_colours and part == "petal colour":
            pack = pack[:UNSEEN_COLOURS]
        columns[part] = shuffled(rng, (pack * count)[:count])
    group: list[dict[str, str]] = []
    for row in range(count):
        parts = {part: column[row] for part, column in columns.items()}
        if parts["petal colour"] == parts["centre colour"]:
            return []
        if any(difference(parts, other) < MIN_DIFFERENCE for other in (*others, *group)):
            return []
        group.append(parts)
    return group


def sample_flower(rng: random.Random, parts: Parts) -> Flower:
    """Sample one flower of a class: position, size, rotation, irregular petals, colours, background.

    Args:
        rng: random generator.
        parts: parts of the class, which do not affect the other properties.

    Example:

    >>> flower = sample_flower(random.Random("1"), classes()["train"]["flower 01"])
    >>> 0.27 <= flower.radius <= 0.34
    True
    """
    chance = rng.random
    radius = 0.27 + 0.07 * chance()
    x = 0.38 + 0.24 * chance()
    y = 0.02 + 1.08 * radius + 0.08 * chance()
    # At a low position, both leaves are out of view.
    height = 0.84 + (0.1 * chance() if chance() < 0.75 else 0.3 + 0.1 * chance())
    foot = x - 0.1 + 0.2 * chance()
    leaves = []
    for side in (-1, 1):
        lift = 0.12 + 0.4 * chance()
        leaf_y = height + 0.06 * chance()
        share = (leaf_y - y) / (1 - y)
        leaves.append(
            Leaf(
                x=x + (foot - x) * share,
                y=leaf_y,
                angle=-lift if side > 0 else lift - math.pi,
                length=0.3 + 0.06 * chance(),
            )
        )
    tints = []
    for _ in range(3):
        shade = 0.88 + 0.18 * chance()
        tints.append((shade * _near(rng, 0.05), shade * _near(rng, 0.05), shade * _near(rng, 0.05)))
    return Flower(
        parts=dict(parts),
        x=x,
        y=y,
        radius=radius,
        angle=2 * math.pi * chance(),
        turns=tuple(0.16 * chance() - 0.08 for _ in range(8)),
        stretches=tuple(_near(rng, 0.06) for _ in range(8)),
        tints=tuple(tints),
        foot=foot,
        leaves=tuple(leaves),
        background=pick(rng, range(len(BACKGROUNDS))),
        blurs=tuple((chance(), chance(), 0.06 + 0.2 * chance(), 0.75 + 0.5 * chance()) for _ in range(7)),
    )


def _near(rng: random.Random, spread: float) -> float:
    return 1.0 - spread + 2 * spread * rng.random()


_PETALS: dict[str, Colour] = {
    "white": (246, 246, 242),
    "yellow": (250, 214, 40),
    "orange": (248, 134, 24),
    "red": (222, 34, 40),
    "pink": (248, 146, 196),
    "purple": (142, 58, 196),
    "blue": (48, 92, 226),
    "burgundy": (122, 14, 54),
}
_CENTRES: dict[str, Colour] = {
    "yellow": (252, 216, 32),
    "white": (250, 250, 246),
    "black": (24, 20, 22),
    "green": (86, 178, 62),
}
_LEAF: Colour = (72, 150, 58)
_DARK_MARK: Colour = (92, 16, 72)
_PALE_MARK: Colour = (252, 240, 206)
_PALE_PETALS = ("white", "yellow", "orange", "pink")
_CENTRE_RADIUS = {"small": 0.2, "large": 0.4}

# Minimum share of its outline that a visible leaf shows.
_SEEN = 0.6


def draw(flower: Flower, image_size: int = 64) -> Image.Image:
    """Draw a flower with anti-aliasing.

    Args:
        flower: the flower.
        image_size: side of the image in pixels; default 64.

    Returns:
        RGB image of `image_size` x `image_size`.
    """
    side = image_size * SUPERSAMPLING
    behind = BACKGROUNDS[flower.background]
    canvas = Image.new("RGB", (side, side), behind)
    pen = ImageDraw.Draw(canvas)
    for x, y, radius, brightness in flower.blurs:
        _disc(pen, x * side, y * side, radius * side, tinted(behind, brightness))
    petal_tint, centre_tint, leaf_tint = flower.tints
    _draw_green(pen, flower, side, leaf_tint)
    fill = tinted(_PETALS[flower.parts["petal colour"]], *petal_tint)
    for place in range(flower.petals):
        _draw_petal(pen, flower, place, side, fill)
    radius = _CENTRE_RADIUS[flower.parts["centre size"]] * flower.radius * side
    fill = tinted(_CENTRES[flower.parts["centre colour"]], *centre_tint)
    rim = max(2.0, 0.045 * flower.radius * side)
    _disc(pen, flower.x * side, flower.y * side, radius + rim, tinted(fill, 0.55))
    _disc(pen, flower.x * side, flower.y * side, radius, fill)
    return canvas.reduce(SUPERSAMPLING)


def box(flower: Flower, image_size: int = 64) -> list[int]:
    """Return the bounding box of the petals, clipped to the image.

    Args:
        flower: the flower.
        image_size: side of the image in pixels; default 64.

    Returns:
        [x, y, width, height] in whole pixels.
    """
    points = [point for place in range(flower.petals) for point in _petal(flower, place, image_size)]
    # The outline of a petal is drawn on both sides of its edge, in whole sub-pixels.
    slack = _line_width(flower, image_size) / 2 + 1.5 / SUPERSAMPLING
    return pixel_box(points, image_size, slack, slack)


def visible(flower: Flower) -> dict[str, str]:
    """Return the visible parts: all, except the leaf if both leaves are out of view.

    A leaf is visible if most of its outline is inside the image and outside the petals.
    """
    seen = dict(flower.parts)
    if not any(_share_seen(flower, leaf) >= _SEEN for leaf in flower.leaves):
        del seen["leaf shape"]
    return seen


def _share_seen(flower: Flower, leaf: Leaf) -> float:
    points = placed(_leaf_outline(flower.parts["leaf shape"]), leaf.x, leaf.y, leaf.angle, leaf.length)
    seen = [0 <= x <= 1 and 0 <= y <= 1 and math.hypot(x - flower.x, y - flower.y) > flower.radius for x, y in points]
    return sum(seen) / len(seen)


def _draw_green(pen: ImageDraw.ImageDraw, flower: Flower, side: int, tint: tuple[float, float, float]) -> None:
    green = tinted(_LEAF, *tint)
    dark = tinted(green, 0.68)
    stem = [(flower.x * side, flower.y * side), (flower.foot * side, float(side))]
    pen.line(stem, fill=tinted(green, 0.85), width=max(1, round(0.032 * side)))
    width = max(1, round(0.012 * side))
    for leaf in flower.leaves:
        x, y = leaf.x * side, leaf.y * side
        outline = _leaf_outline(flower.parts["leaf shape"])
        points = placed(outline, x, y, leaf.angle, leaf.length * side)
        pen.polygon(points, fill=green)
        pen.line([*points, points[0]], fill=dark, width=width)


def _draw_petal(pen: ImageDraw.ImageDraw, flower: Flower, place: int, side: int, fill: Colour) -> None:
    marking, colour = flower.parts["petal marking"], flower.parts["petal colour"]
    mark = _DARK_MARK if colour in _PALE_PETALS else _PALE_MARK
    points = _petal(flower, place, side)
    pen.polygon(points, fill=fill)
    for figure in _MARKS[marking](flower.parts["petal shape"], flower.petals) if marking in _MARKS else ():
        drawn = _on_petal(flower, place, side, figure)
        if len(drawn) == 1:
            _disc(pen, *drawn[0], 0.075 * flower.radius * side, mark)
        else:
            pen.line(drawn, fill=mark, width=max(1, round(0.06 * flower.radius * side)))
    edge = mark if marking == "edged" else tinted(fill, 0.72)
    width = max(1, round(_line_width(flower, side)))
    pen.line([*points, points[0], points[1]], fill=edge, width=width, joint="curve")


def _line_width(flower: Flower, side: float) -> float:
    return (0.13 if flower.parts["petal marking"] == "edged" else 0.045) * flower.radius * side


def _petal(flower: Flower, place: int, side: float) -> list[Point]:
    return _on_petal(flower, place, side, _petal_outline(flower.parts["petal shape"], flower.petals))


def _on_petal(flower: Flower, place: int, side: float, figure: tuple[Point, ...]) -> list[Point]:
    """Place a figure on one of the petals."""
    angle = flower.angle + 2 * math.pi * (place + flower.turns[place]) / flower.petals
    scale = flower.radius * flower.stretches[place] * side
    return placed(figure, flower.x * side, flower.y * side, angle, scale)


def _disc(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, fill: Colour) -> None:
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


# Petals and leaves point along x, from 0 at the centre (or the stem) to 1 at the tip.


def _half_width(shape: str, count: int) -> float:
    """Return the half-width of a petal at its widest point: neighbours may overlap a little but can be counted."""
    if shape == "narrow":
        return 0.12
    room = 0.64 * math.tan(math.pi / count)
    return min(0.36, room) if shape == "pointed" else min(0.4, room)


@functools.cache
def _petal_outline(shape: str, count: int) -> tuple[Point, ...]:
    width = _half_width(shape, count)
    if shape == "pointed":
        upper = [(0.08, 0.3 * width), (0.25, 0.8 * width), (0.42, width), (0.6, 0.78 * width)]
        upper += [(0.8, 0.42 * width), (1.0, 0.0)]
    elif shape == "narrow":
        upper = [(0.0, 0.7 * width), (0.3, width)]
        turns = [math.pi * (0.5 - step / 12) for step in range(7)]
        upper += [(1 - width + width * math.cos(turn), width * math.sin(turn)) for turn in turns]
    elif shape == "heart-shaped":
        upper = [(0.08, 0.25 * width), (0.45, 0.8 * width), (0.66, width)]
        turns = [math.pi * (0.4 - step / 10) for step in range(9)]
        upper += [
            (0.82 + 0.18 * math.cos(turn), 0.52 * width + 0.5 * width * math.sin(turn))
            for turn in turns
            if 0.52 * width + 0.5 * width * math.sin(turn) > 0.05 * width
        ]
        # If there are many petals, each is narrow, and a deep notch would split it into two.
        upper += [({3: 0.68, 4: 0.7, 5: 0.77}.get(count, 0.84), 0.0)]
    else:
        turns = [math.pi * (1 - step / 16) for step in range(17)]
        upper = [(0.53 + 0.47 * math.cos(turn), width * math.sin(turn)) for turn in turns]
    return (*upper, *((x, -y) for x, y in reversed(upper) if y > 1e-9))


def _spots(shape: str, count: int) -> tuple[tuple[Point, ...], ...]:
    width = _half_width(shape, count)
    if shape == "narrow" or count == 8:
        return (((0.56, 0.0),), ((0.8, 0.0),))
    out = 0.72 if shape == "heart-shaped" else 0.66
    return (((0.54, 0.0),), ((out, 0.5 * width),), ((out, -0.5 * width),))


def _stripes(shape: str, count: int) -> tuple[tuple[Point, ...], ...]:
    width = _half_width(shape, count)
    end = 0.62 if shape == "heart-shaped" else 0.9
    middle = ((0.2, 0.0), (end, 0.0))
    if shape == "narrow" or count == 8:
        return (middle,)
    return (
        middle,
        ((0.24, 0.25 * width), (0.74, 0.5 * width)),
        ((0.24, -0.25 * width), (0.74, -0.5 * width)),
    )


_MARKS = {"spotted": _spots, "striped": _stripes}


@functools.cache
def _leaf_outline(shape: str) -> tuple[Point, ...]:
    if shape == "grass-like":
        upper = [(0.0, 0.06), (0.4, 0.075), (0.8, 0.05), (1.25, 0.0)]
    elif shape == "lobed":
        # Three discs, one ahead and one to either side, joined at the stalk.
        points: list[Point] = [(0.0, 0.03)]
        for x, y in ((0.42, 0.27), (0.76, 0.0), (0.42, -0.27)):
            facing = math.atan2(y, x - 0.45)
            turns = [facing + math.pi * (0.7 - step * 0.2) for step in range(8)]
            points += [(x + 0.24 * math.cos(turn), y + 0.24 * math.sin(turn)) for turn in turns]
        return (*points, (0.0, -0.03))
    elif shape == "jagged":
        teeth = 5
        upper = [(0.0, 0.0)]
        for tooth in range(teeth):
            low, high = 0.05 + tooth * 0.19, 0.05 + (tooth + 0.75) * 0.19
            upper += [(low, 0.5 * _lens(low)), (high, 0.12 + _lens(high))]
        upper += [(1.0, 0.0)]
    else:
        turns = [math.pi * (1 - step / 12) for step in range(13)]
        upper = [(0.5 + 0.5 * math.cos(turn), 0.23 * math.sin(turn)) for turn in turns]
    return (*upper, *((x, -y) for x, y in reversed(upper) if y > 1e-9))


def _lens(x: float) -> float:
    return 0.8 * x * (1 - x)


COUNT = 10
"""Descriptions an image, as many as Reed et al. 2016 collected."""

# Words for the values of a part, in their order; repeated words are more likely. "few" and "several" are ambiguous:
# each stands for two values.
_SAID = {
    "petal colour": (
        "white white snowy, yellow yellow golden, orange orange tangerine, red red crimson scarlet, pink pink rosy, "
        "purple purple violet, blue blue azure, burgundy burgundy maroon"
    ),
    "petal number": (
        "three three three few, four four four few, five five five several, six six six several, eight eight eight many"
    ),
    "petal shape": "round rounded, pointed pointy sharp, narrow thin slender, heart-shaped heart-shaped notched",
    "petal marking": "plain unmarked, spotted speckled dotted, striped streaked, bordered rimmed",
    "centre colour": "yellow yellow golden, white white snowy, black black dark, green",
    "centre size": "small small tiny little, large large big wide",
    "leaf shape": "oval smooth, jagged serrated toothed, grass-like grassy blade-like, lobed clover-like",
}
WORDS: Mapping[str, Mapping[str, list[str]]] = {
    part: dict(zip(PARTS[part], map(str.split, said.split(",")), strict=True)) for part, said in _SAID.items()
}

MARKINGS: Mapping[str, tuple[str, ...]] = {
    "plain": ("without any markings", "in a single even tone"),
    "spotted": ("with spots", "covered in dots"),
    "striped": ("with stripes", "with streaks along them"),
    "edged": ("with a contrasting border", "with edges of another colour"),
}
"""Markings as they may stand behind the petals."""

# Probability that a description mentions a part. Draws with fewer than two or more than five parts are repeated.
_TELLING = {
    "petal colour": 0.85,
    "petal number": 0.45,
    "petal shape": 0.5,
    "petal marking": 0.5,
    "centre colour": 0.6,
    "centre size": 0.35,
    "leaf shape": 0.4,
}
_FLOWERS = ("flower", "flower", "flower", "blossom", "bloom", "plant")
_PRAISES = ("pretty", "lovely", "nice", "single", "bright")
_TAILS = ("in full bloom", "seen from the front", "growing on a tall stem", "standing on its own")


def captions(seen: Mapping[str, str], rng: random.Random) -> tuple[str, ...]:
    """Write the descriptions of a flower.

    Args:
        seen: part -> value of the visible parts: all parts, or all but the leaf.
        rng: random generator of content and wording.

    Returns:
        `COUNT` distinct descriptions in lower case, with commas as the only punctuation.

    Example:

    >>> captions(classes()["train"]["flower 03"], random.Random("3"))[0]
    'a plant with petals in a single even tone and a centre that is green'
    """
    written: dict[str, None] = {}
    while len(written) < COUNT:
        written[_Teller(seen, rng).text()] = None
    return tuple(written)


class _Teller:
    """Writer of one description."""

    def __init__(self, seen: Mapping[str, str], rng: random.Random) -> None:
        self.rng = rng
        self.seen = seen
        self.told: list[str] = []
        while not 2 <= len(self.told) <= 5:
            self.told = [part for part in seen if rng.random() < _TELLING[part]]
        self.words = {part: pick(rng, WORDS[part][seen[part]]) for part in self.told}

    def text(self) -> str:
        """Return the description."""
        nouns = [noun for noun in (self._petals(), self._centre(), self._leaves()) if noun]
        ways = [self._has, self._with, self._can_be_seen]
        if self._tells("petal") and self._tells("centre"):
            ways += [self._surrounded, self._surrounding]
        if self._tells("petal") != ["petal number"]:
            ways += [self._statements, self._statements]
        words = pick(self.rng, ways)(nouns)
        if len(words.split()) < 8 or self.rng.random() < 0.1:
            words = f"{words} {pick(self.rng, _TAILS)}"
        return words

    def _has(self, nouns: list[str]) -> str:
        openers = (f"this {self._flower()} has", f"the {self._flower()} in the picture has", "this one has")
        return f"{pick(self.rng, openers)} {_listed(nouns)}"

    def _with(self, nouns: list[str]) -> str:
        return f"{self._praised()} with {_listed(nouns)}"

    def _can_be_seen(self, nouns: list[str]) -> str:
        ways = ("can be seen on this", "make up this", "are what you notice on this")
        return f"{_listed(nouns)} {pick(self.rng, ways)} {self._flower()}"

    def _surrounded(self, nouns: list[str]) -> str:
        petals, centre, *leaves = nouns
        start = pick(self.rng, ("", f"{self._praised()} showing ", "there is "))
        return f"{start}{centre} surrounded by {petals}{self._above(leaves)}"

    def _surrounding(self, nouns: list[str]) -> str:
        petals, centre, *leaves = nouns
        how = pick(self.rng, ("surround", "grow around", "are arranged around"))
        return f"{petals} {how} {centre}{self._above(leaves)}"

    def _statements(self, nouns: list[str]) -> str:
        """Return sentences about petals, centre and leaves instead of a list."""
        clauses = []
        if petals := self._tells("petal"):
            number = [self.words[part] for part in petals if part == "petal number"]
            rest = [self.words[part] for part in petals if part != "petal number"]
            clauses.append((" ".join([*number, "petals"]), f"are {_listed(rest)}"))
        if centre := self._tells("centre"):
            noun = pick(self.rng, ("centre", "middle"))
            clauses.append((noun, f"is {_listed([self.words[part] for part in centre])}"))
        if self._tells("leaf"):
            clauses.append(("leaves", f"are {self.words['leaf shape']}"))
        (noun, verb), *others = clauses
        first = f"the {noun} of {pick(self.rng, ('this', 'the'))} {self._flower()} {verb}"
        return _listed([first, *(f"{pick(self.rng, ('the', 'its'))} {noun} {verb}" for noun, verb in others)])

    def _petals(self) -> str:
        """`five round red petals with spots`, in one of many orders."""
        told = self._tells("petal")
        if not told:
            return ""
        before = [part for part in ("petal shape", "petal marking", "petal colour") if part in told]
        after = []
        if len(before) > 1 and self.rng.random() < 0.3:
            after = [before.pop(int(self.rng.random() * len(before)))]
        tail = f" that are {self.words[after[0]]}" if after else ""
        if "petal marking" in before and self.rng.random() < 0.5:
            before.remove("petal marking")
            tail += f" {pick(self.rng, MARKINGS[self.seen['petal marking']])}"
        if self.rng.random() < 0.3:
            before.reverse()
        words = [self.words[part] for part in before]
        if len(words) == 2 and self.rng.random() < 0.3:
            words = [" and ".join(words)]
        number = [self.words["petal number"]] if "petal number" in told else []
        return " ".join([*number, *words, "petals"]) + tail

    def _centre(self) -> str:
        words = [self.words[part] for part in ("centre size", "centre colour") if part in self.words]
        if not words:
            return ""
        noun = pick(self.rng, ("centre", "centre", "middle"))
        if self.rng.random() < 0.25:
            return f"a {noun} that is {_listed(words)}"
        return f"a {' '.join(words)} {noun}"

    def _leaves(self) -> str:
        if "leaf shape" not in self.words:
            return ""
        return f"{self.words['leaf shape']} {pick(self.rng, ('leaves', 'leaves', 'foliage'))}"

    def _above(self, leaves: list[str]) -> str:
        return f" {pick(self.rng, ('above', 'with'))} {leaves[0]}" if leaves else ""

    def _tells(self, group: str) -> list[str]:
        return [part for part in self.told if part.startswith(group)]

    def _flower(self) -> str:
        return pick(self.rng, _FLOWERS)

    def _praised(self) -> str:
        praise = f"{pick(self.rng, _PRAISES)} " if self.rng.random() < 0.4 else ""
        return f"a {praise}{self._flower()}"


def _listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def generate(images: Mapping[str, int], *, seed: int = 0, image_size: int = 64) -> Iterator[ImageRecord]:
    """Generate flowers lazily, cycling through the classes of a split.

    An image depends only on the seed, its split, its index and its size, so more images of one split do not change
    others.

    Args:
        images: split -> number of images.
        seed: an integer; determines classes and images.
        image_size: side of the images in pixels, 16 to 1024; default 64. Below 64, details of the parts are lost.

    Returns:
        Iterator of records: `image` is PNG bytes, RGB; `class_name` has the form "flower 07"; `captions` are ten
        distinct descriptions; `objects` holds one flower with `label`, `box` `[x, y, w, h]` of its petals in pixels,
        and its visible `parts`.

    Raises:
        InvalidArgumentError: for an unknown split, or a number or size out of range; raised by the call, before the
            first record.

    Example:

    >>> record = next(generate({"test": 1}))
    >>> record.class_name, record.objects[0]["parts"]["petal colour"]
    ('flower 49', 'orange')
    >>> record.captions[0]
    'slender and orange petals and a tiny white centre can be seen on this flower seen from the front'
    """
    known = classes(whole("seed", seed))
    wanted = requested(images, known, image_size)
    return (_record(split, index, seed, image_size, known[split]) for split, index in wanted)


def attributes(seed: int = 0) -> ClassAttributes:
    """Return the parts of the classes of a seed, as one binary vector per class.

    Args:
        seed: the seed of `generate`.

    Returns:
        31 attributes of 60 classes, one attribute per value of a part.

    Example:

    >>> known = attributes()
    >>> known.names[0], len(known.names), int(known.values["flower 01"].sum())
    ('petal colour: white', 31, 7)
    """
    pairs = [(part, value) for part, values in PARTS.items() for value in values]
    return ClassAttributes(
        tuple(f"{part}: {value}" for part, value in pairs),
        {
            name: np.array([parts[part] == value for part, value in pairs], np.float32)
            for group in classes(whole("seed", seed)).values()
            for name, parts in group.items()
        },
    )


def _record(split: str, index: int, seed: int, image_size: int, known: Mapping[str, Parts]) -> ImageRecord:
    name = tuple(known)[index % len(known)]
    flower = sample_flower(random.Random(f"{seed}/flowers/{split}/{index}/flower"), known[name])
    seen = visible(flower)
    # Descriptions have a separate generator, so that a change of wording does not change the images.
    written = captions(seen, random.Random(f"{seed}/flowers/{split}/{index}/captions"))
    return ImageRecord(
        key=f"{split}/{index:06d}.png",
        captions=written,
        split=split,
        image=png(draw(flower, image_size)),
        class_name=name,
        objects=({"label": "flower", "box": box(flower, image_size), "parts": seen},),
    )
