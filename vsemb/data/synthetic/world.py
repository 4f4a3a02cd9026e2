"""The contents of scenes: shapes, colours and sizes, the sampling of a scene, and the classes of each split.

Positions and lengths are in units of the image's side, x to the right and y downwards, so that a scene can be
rendered at any size. All random numbers come from `random.Random.random`, the only method whose sequence Python
guarantees, so a seed gives the same scenes on every Python version.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Annotated, TypeVar

from vsemb.errors import invalid_argument, unknown_name
from vsemb.parts import Whole, between, require

Combination = tuple[str, str]
"""A colour and a shape."""

SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring")

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (218, 38, 44),
    "orange": (246, 132, 24),
    "yellow": (247, 208, 36),
    "green": (46, 158, 68),
    "turquoise": (30, 214, 208),
    "blue": (40, 92, 222),
    "purple": (144, 62, 190),
    "pink": (248, 134, 188),
}

SIZES = {"small": 0.19, "medium": 0.30, "large": 0.46}
"""Extent of an object by size word; the jitter of 7 % leaves wide gaps between the three."""

BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "white": (248, 248, 246),
    "grey": (142, 144, 150),
    "black": (26, 26, 30),
}

HOLD_OUT: tuple[Combination, ...] = (
    ("red", "star"),
    ("yellow", "ring"),
    ("green", "triangle"),
    ("blue", "heart"),
    ("purple", "square"),
    ("orange", "cross"),
)
"""The combinations that occur in the split `compositional` and nowhere else."""

_OBJECT_COUNTS = (1,) * 6 + (2,) * 7 + (3,) * 4 + (4,) * 3  # 30 % single objects
_TWIN = 0.2
_MARGIN = 0.03
_GAP = 0.04
_TRIES = 30
_ATTEMPTS = 40

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class SceneObject:
    """One object of a scene.

    Args:
        shape, colour, size: words of `SHAPES`, `COLOURS` and `SIZES`.
        x, y: the centre.
        extent: side of a square around the centre that holds the whole object.
        angle: rotation in degrees, near 0.
        shade: brightness relative to the pure colour, near 1.
    """

    shape: str
    colour: str
    size: str
    x: float
    y: float
    extent: float
    angle: float = 0.0
    shade: float = 1.0

    @property
    def label(self) -> str:
        """The colour and the shape, e.g. `"red circle"`."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """A background and 1 to 4 objects that do not overlap; the first, the main one, is the largest."""

    background: str
    objects: tuple[SceneObject, ...]
    shade: float = 1.0


@dataclass(frozen=True)
class Pools:
    """Contents of a split: combinations for the main object and for the others."""

    main: tuple[Combination, ...]
    others: tuple[Combination, ...]


def pick(rng: random.Random, items: Sequence[_Item]) -> _Item:
    """Return one item, all with the same probability."""
    return items[int(rng.random() * len(items))]


def shuffled(rng: random.Random, items: Iterable[_Item]) -> list[_Item]:
    """Return the items in random order."""
    return [item for _, item in sorted(((rng.random(), item) for item in items), key=lambda pair: pair[0])]


def whole(name: str, value: int) -> int:
    """Return an argument that must be a whole number, as an int.

    Raises:
        InvalidArgumentError: if it is not a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise invalid_argument(name, value, "a whole number")
    return int(value)


def requested(images: Mapping[str, int], splits: Collection[str], image_size: int) -> Iterator[tuple[str, int]]:
    """Check the arguments of a generator.

    Args:
        images: split -> number of images.
        splits: the allowed splits.
        image_size: side of the images in pixels.

    Returns:
        An iterator over the split and index of every image.

    Raises:
        InvalidArgumentError: for an unknown split, or a number or size out of range.
    """
    require("image_size", image_size, Annotated[int, between(16, 1024)])
    for split, count in images.items():
        if split not in splits:
            raise unknown_name("images", split, splits)
        require("images", count, Whole)
    return ((split, index) for split, count in dict(images).items() for index in range(count))


def compositional_pools() -> dict[str, Pools]:
    """Return the pools of splits that test compositional generalization: split -> pools.

    Only the split `compositional` shows the combinations of `HOLD_OUT`. Its main object is always one of them.
    """
    everything = tuple(itertools.product(COLOURS, SHAPES))
    shown = tuple(pair for pair in everything if pair not in HOLD_OUT)
    return dict.fromkeys(("train", "val", "test"), Pools(shown, shown)) | {"compositional": Pools(HOLD_OUT, everything)}


def zero_shot_pools(seed: int) -> dict[str, Pools]:
    """Return the pools of class-disjoint splits: 40 classes in train, 8 in val, 16 in test.

    A class is a combination of colour and shape. No object of one split has a combination of another split. Each colour
    and each shape occurs equally often in every split, because the classes of a split are whole diagonals of the
    colour x shape table.

    Args:
        seed: shuffles the rows and columns of the table, and so selects the classes of each split.
    """
    rng = random.Random(f"{seed}/classes")
    colours, shapes = shuffled(rng, COLOURS), shuffled(rng, SHAPES)
    split_of_diagonal = ("val", "test", "test", *["train"] * (len(SHAPES) - 3))
    classes: dict[str, list[Combination]] = {"train": [], "val": [], "test": []}
    for (row, colour), (column, shape) in itertools.product(enumerate(colours), enumerate(shapes)):
        classes[split_of_diagonal[(column - row) % len(SHAPES)]].append((colour, shape))
    return {split: Pools(tuple(sorted(pairs)), tuple(sorted(pairs))) for split, pairs in classes.items()}


def sample_scene(rng: random.Random, pools: Pools) -> Scene:
    """Draw one scene.

    Args:
        rng: generator of all random numbers.
        pools: the combinations to draw from.

    Returns:
        A scene in which the main object is strictly the largest, and the squares (of side `extent`) around any two
        objects do not overlap.
    """
    count = pick(rng, _OBJECT_COUNTS)
    pairs = [pick(rng, pools.main)]
    for _ in range(count - 1):
        twin = rng.random() < _TWIN
        pairs.append(pick(rng, pairs if twin else pools.others))
    background = pick(rng, tuple(BACKGROUNDS))
    scene_shade = 0.96 + 0.08 * rng.random()
    sizes, extents, centres = _layout(rng, count)
    objects = []
    for (colour, shape), size, extent, (x, y) in zip(pairs, sizes, extents, centres, strict=True):
        angle = 14.0 * rng.random() - 7.0
        shade = 0.9 + 0.16 * rng.random()
        objects.append(SceneObject(shape, colour, size, x, y, extent, angle, shade))
    return Scene(background, tuple(objects), scene_shade)


def _layout(rng: random.Random, count: int) -> tuple[list[str], list[float], list[tuple[float, float]]]:
    """Draw sizes and positions until they fit; four objects may need a few attempts."""
    names = tuple(SIZES)
    for attempt in range(_ATTEMPTS):
        main = int(rng.random() * 3) if count == 1 else 1 + int(rng.random() * 2)
        if attempt == _ATTEMPTS - 1:
            main = min(main, 1)
        sizes = [names[main]] + [pick(rng, names[:main]) for _ in range(count - 1)]
        extents = [SIZES[size] * (0.93 + 0.14 * rng.random()) for size in sizes]
        centres = _places(rng, extents)
        if centres is not None:
            return sizes, extents, centres
    raise AssertionError("a medium and three small objects always fit")  # they cover a fifth of the area


def _places(rng: random.Random, extents: Sequence[float]) -> list[tuple[float, float]] | None:
    centres: list[tuple[float, float]] = []
    for index, extent in enumerate(extents):
        low = _MARGIN + extent / 2
        for _ in range(_TRIES):
            x = low + (1 - 2 * low) * rng.random()
            y = low + (1 - 2 * low) * rng.random()
            distances = [max(abs(x - a), abs(y - b)) for a, b in centres]
            least = [(extent + other) / 2 + _GAP for other in extents[:index]]
            if all(map(operator.ge, distances, least)):
                centres.append((x, y))
                break
        else:
            return None
    return centres
