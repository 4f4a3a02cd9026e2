"""Parts of a flower, the classes that they make, and the flowers that images show.

Coordinates and lengths are in units of the image's side, x to the right and y downwards. All randomness comes from
`random.Random.random`, see `vsemb.data.synthetic.world`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from vsemb.data.synthetic.world import pick, shuffled

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
