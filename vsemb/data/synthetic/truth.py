"""Whether a caption is true of a scene: the grammar of captions, read backwards.

`vsemb.data.synthetic.grammar` writes captions that are true; here any caption is read, whoever wrote it, and
checked against what is stored of the image. A caption is understood whole or not at all. What it says is
checked as the grammar means it: counts are exact where a plural stands, `left of` and the like hold for
boxes, the definite article wants one object that answers to the words, and noun phrases name different
objects. A caption may leave out what there is: it has to be true, not complete.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from vsemb.data.synthetic.reading import Reading, read_caption
from vsemb.data.synthetic.world import BACKGROUNDS, COLOURS, SHAPES, SIZES


def is_true(caption: str, objects: Sequence[Mapping[str, Any]], image_size: int, background: str) -> bool | None:
    """Tells whether a caption is true of an image.

    Args:
        caption: a caption, in lower or upper case, with or without a full stop.
        objects: what is stored of the image's objects: `shape`, `colour`, `size`, `box` and `centre` each.
        image_size: side of the image in pixels, which boxes and centres are in.
        background: one of `BACKGROUNDS`, see `background_of`.

    Returns:
        whether it is true, or None where the caption is not made of the grammar's phrases as those are.

    Example:

    >>> star = {"shape": "star", "colour": "red", "size": "small", "box": [5, 5, 9, 9], "centre": [9.5, 9.5]}
    >>> is_true("there is a red star in the top left corner", [star], 64, "grey")
    True
    >>> is_true("two red stars on a grey background", [star], 64, "grey")
    False
    >>> is_true("a star of red", [star], 64, "grey") is None
    True
    """
    said = read_caption(caption)
    if said is None:
        return None
    if said.background not in ("", background):
        return False
    return _assigned(said, objects, image_size, ())


def has_truth(entry: Mapping[str, Any]) -> bool:
    """Tells whether a dataset stores of an image what `is_true` needs.

    Args:
        entry: its line in the index of its split.

    Example:

    >>> has_truth({"captions": ["a dog"], "objects": [{"label": "dog"}], "width": 64, "height": 64})
    False
    """
    objects = entry.get("objects") or ()
    return (
        bool(objects)
        and entry.get("width", 0) == entry.get("height")
        and all(
            item.get("shape") in SHAPES
            and item.get("colour") in COLOURS
            and item.get("size") in SIZES
            and {"box", "centre"} <= item.keys()
            for item in objects
        )
    )


def background_of(encoded: bytes) -> str:
    """Returns the background of an image of `generate`: the name in `BACKGROUNDS` of its corners' colour.

    Example:

    >>> from vsemb.data import synthetic as scenes
    >>> background_of(scenes.encode(scenes.Scene("grey", ())))
    'grey'
    """
    with Image.open(io.BytesIO(encoded)) as image:
        pixels = np.asarray(image.convert("RGB"), np.float64)
    # Shades differ by 4 % either way; no object reaches into more than one corner.
    corners = np.median(pixels[[0, 0, -1, -1], [0, -1, 0, -1]], axis=0)
    return min(BACKGROUNDS, key=lambda name: float(np.abs(corners - BACKGROUNDS[name]).sum()))


def _assigned(
    said: Reading, objects: Sequence[Mapping[str, Any]], image_size: int, groups: tuple[tuple[int, ...], ...]
) -> bool:
    """Tells whether the nouns that have no objects yet can be given some that make the caption true."""
    if len(groups) == len(said.nouns):
        return _holds(said, objects, image_size, groups)
    noun = said.nouns[len(groups)]
    fitting = tuple(index for index, item in enumerate(objects) if noun.fits(item))
    if noun.count > 1:
        options = [fitting] if len(fitting) == noun.count else []
    elif noun.article == "the":
        options = [fitting] if len(fitting) == 1 else []
    else:
        options = [(index,) for index in fitting]
    taken = {index for group in groups for index in group}
    return any(
        _assigned(said, objects, image_size, (*groups, option)) for option in options if taken.isdisjoint(option)
    )


def _holds(
    said: Reading, objects: Sequence[Mapping[str, Any]], image_size: int, groups: Sequence[tuple[int, ...]]
) -> bool:
    """Tells whether what is said of the nouns is true of their objects."""
    for noun, group in zip(said.nouns, groups, strict=True):
        if noun.different and len({objects[index]["shape"] for index in group}) < len(group):
            return False
    first = objects[groups[0][0]]
    if any(first[name] != value for name, value in said.attributes.items()):
        return False
    colours = {objects[index]["colour"] for index in groups[0]}
    if said.colours and len(colours) != (1 if said.colours == "same" else len(groups[0])):
        return False
    if not all(_lies(objects[groups[noun][0]], where, image_size) for noun, where in said.places.items()):
        return False
    return all(_related(objects[groups[one][0]], how, objects[groups[other][0]]) for one, how, other in said.relations)


def _lies(item: Mapping[str, Any], where: tuple[str, ...], image_size: int) -> bool:
    x, y = (value / image_size for value in item["centre"])
    rounding = 0.0051 / image_size  # Centres are stored with two decimals.
    low, high = 0.36 + rounding, 0.64 - rounding
    lies = {
        "left": x < low,
        "right": x > high,
        "top": y < low,
        "bottom": y > high,
        "near": max(abs(x - 0.5), abs(y - 0.5)) <= 0.14 + rounding,
        "middle": max(abs(x - 0.5), abs(y - 0.5)) <= 0.09 + rounding,
    }
    return all(lies[side] for side in where)


def _related(one: Mapping[str, Any], how: str, other: Mapping[str, Any]) -> bool:
    if how in ("larger", "smaller"):
        order = list(SIZES)
        apart = order.index(one["size"]) - order.index(other["size"])
        return apart > 0 if how == "larger" else apart < 0
    axis = 0 if how in ("left", "right") else 1
    first, second = (one, other) if how in ("left", "above") else (other, one)
    # Boxes are of whole pixels, so in a small image those of objects that are apart may share one.
    end = first["box"][axis] + first["box"][axis + 2] - 1
    return end <= second["box"][axis] and first["centre"][axis] < second["centre"][axis]
