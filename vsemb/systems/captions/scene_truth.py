"""Truth of captions of synthetic scenes, by parsing them with the grammar of captions.

`vsemb.data.synthetic.grammar` generates true captions. This module parses captions of any source, and checks them
against the stored objects of the image. It parses exactly the captions that consist of phrases of the grammar, combined
by its rules. Plurals mean exact counts. Relations such as `left of` hold for boxes. The definite article needs
exactly one matching object. Noun phrases name different objects. A true caption may be incomplete.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from vsemb.data.synthetic.world import BACKGROUNDS, COLOURS, SHAPES, SIZES

_SINGULARS = (
    {shape: shape for shape in SHAPES} | {"disc": "circle", "hoop": "ring"} | dict.fromkeys(("shape", "object"))
)
_PLURALS = {("crosses" if word == "cross" else f"{word}s"): shape for word, shape in _SINGULARS.items()}
_SIZES = {size: size for size in SIZES} | {"little": "small", "big": "large"}
_COUNTS = {"two": 2, "three": 3, "four": 4}


def _one_of(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(words)})"


_NOUN = re.compile(
    rf"\b(?P<article>a(?= [^aeiou])|an(?= [aeiou])|the|another|(?P<many>{_one_of(_COUNTS)}))"
    rf"(?P<different>(?(many) different(?= shapes)|!))?(?: (?P<size>{_one_of(_SIZES)}))?"
    rf"(?: (?P<colour>{_one_of(COLOURS)}))?"
    rf" (?P<head>(?(many){_one_of(_PLURALS)}|{_one_of(_SINGULARS)}))\b"
)
_PLACE = (
    r"(?:in the (?:top|bottom) (?:left|right) corner|on the (?:left|right)(?: side)?|at the (?:top|bottom)"
    r"|(?:in|near) the (?:middle|centre))"
)
_RELATION = r"(?:(?:to the )?(?:left|right) of|above|below|under|(?:larger|smaller) than)"
_ATTRIBUTES = rf"({_one_of(_SIZES)}) and ({_one_of(COLOURS)})"
# Captions whose noun phrases are replaced by their numbers: P0 for a plural, T0 after `the`, S0 for another singular.
_CLAUSE = rf"(?:P\d+|[ST]\d+(?: {_PLACE}| {_RELATION} [ST]\d+)?)"
_SENTENCE = rf"[ST]0 is (?:{_PLACE}|{_RELATION} [ST]1|{_ATTRIBUTES})"
_INTRODUCED = r"(?:an image of |a picture of |there is (?=S)|there are (?=P))?"
_CAPTION = re.compile(
    rf"{_PLACE} (?:there )?is [ST]0"
    rf"|(?:(?:{_SENTENCE}|{_INTRODUCED}{_CLAUSE})(?: (?:and|with) {_CLAUSE})*"
    rf"|{_INTRODUCED}P0 of (?:the (?P<same>same) colour|(?P<different>different) colours))"
    rf"(?: (?:on|against) a (?P<background>{_one_of(BACKGROUNDS)}) background)?"
)


def is_true(caption: str, objects: Sequence[Mapping[str, Any]], image_size: int, background: str) -> bool | None:
    """Return whether a caption is true of an image.

    Args:
        caption: a caption, in lower or upper case, with or without a full stop.
        objects: stored objects of the image, each with `shape`, `colour`, `size`, `box` and `centre`.
        image_size: side of the image in pixels, the unit of boxes and centres.
        background: one of `BACKGROUNDS`, see `background_of`.

    Returns:
        whether the caption is true; None if the grammar does not contain it.

    Example:

    >>> star = {"shape": "star", "colour": "red", "size": "small", "box": [5, 5, 9, 9], "centre": [9.5, 9.5]}
    >>> is_true("there is a red star in the top left corner", [star], 64, "grey")
    True
    >>> is_true("two red stars on a grey background", [star], 64, "grey")
    False
    >>> is_true("a star of red", [star], 64, "grey") is None
    True
    """
    said = _read(caption)
    if said is None:
        return None
    return said.background in (None, background) and _assigned(said, objects, image_size, ())


def has_truth(objects: Sequence[Mapping[str, Any]], size: Sequence[int]) -> bool:
    """Return whether a dataset has the data of an image that `is_true` needs.

    Args:
        objects: of the image, as in `Split.objects`.
        size: its width and height.

    Example:

    >>> has_truth([{"label": "dog"}], (64, 64))
    False
    """
    allowed = {"shape": SHAPES, "colour": COLOURS, "size": SIZES}
    for item in objects:
        labelled = all(item.get(name) in values for name, values in allowed.items())
        if not labelled or not {"box", "centre"} <= item.keys():
            return False
    return bool(objects) and size[0] == size[1]


def background_of(encoded: bytes) -> str:
    """Return the background of an image of `generate`: the name in `BACKGROUNDS` of the colour of its corners.

    Example:

    >>> from vsemb.data.synthetic import render, world
    >>> background_of(render.encode(world.Scene("grey", ())))
    'grey'
    """
    with Image.open(io.BytesIO(encoded)) as image:
        pixels = np.asarray(image.convert("RGB"), np.float64)
    # Shades vary by +-4 %. An object covers at most one corner.
    corners = np.median(pixels[[0, 0, -1, -1], [0, -1, 0, -1]], axis=0)
    return min(BACKGROUNDS, key=lambda name: float(np.abs(corners - BACKGROUNDS[name]).sum()))


@dataclass(frozen=True)
class _Noun:
    """A noun phrase: its article or number, and the properties that it names; None for other properties."""

    article: str
    different: bool
    size: str | None
    colour: str | None
    shape: str | None

    @property
    def count(self) -> int:
        return _COUNTS.get(self.article, 1)

    def fits(self, item: Mapping[str, Any]) -> bool:
        said = {"size": self.size, "colour": self.colour, "shape": self.shape}
        return all(value in (None, item[name]) for name, value in said.items())


@dataclass(frozen=True)
class _Reading:
    """The statements of a caption.

    Attributes:
        nouns: noun phrases in order; they name different objects.
        places: (noun, phrase of its place).
        relations: (noun, phrase of the spatial or size relation, noun).
        attributes: size and colour stated of the first noun's object.
        colours: `same` or `different`, stated of the objects of the only noun, or None.
        background: the stated background, or None.
    """

    nouns: list[_Noun]
    places: list[tuple[int, str]]
    relations: list[tuple[int, str, int]]
    attributes: dict[str, str]
    colours: str | None
    background: str | None


def _read(caption: str) -> _Reading | None:
    """Parse a caption; None if the grammar does not contain it."""
    nouns: list[_Noun] = []

    def numbered(match: re.Match[str]) -> str:
        size, shapes, letter = match["size"], _SINGULARS, "S"
        if match["article"] == "the":
            letter = "T"
        if match["many"]:
            shapes, letter = _PLURALS, "P"
        shape = shapes[match["head"]]
        nouns.append(_Noun(match["article"], bool(match["different"]), size and _SIZES[size], match["colour"], shape))
        return f"{letter}{len(nouns) - 1}"

    text = _NOUN.sub(numbered, " ".join(caption.lower().strip().removesuffix(".").split()))
    whole = _CAPTION.fullmatch(text)
    if whole is None:
        return None
    for before, noun in zip([None, *nouns], nouns, strict=False):
        # `another` repeats colour and shape of the previous noun.
        alike = before is not None and (before.colour, before.shape) == (noun.colour, noun.shape)
        if noun.article == "another" and not alike:
            return None
    attributes: dict[str, str] = {}
    named = re.search(rf"0 is {_ATTRIBUTES}", text)
    if named:
        if nouns[0].size or nouns[0].colour:
            return None
        attributes = {"size": _SIZES[named[1]], "colour": named[2]}
    places = re.findall(rf"(?:[ST](\d+)(?: is)? |^)({_PLACE})", text)
    relations = re.findall(rf"[ST](\d+)(?: is)? ({_RELATION}) [ST](\d+)", text)
    return _Reading(
        nouns,
        [(int(noun or 0), where) for noun, where in places],
        [(int(one), how, int(other)) for one, how, other in relations],
        attributes,
        whole["same"] or whole["different"],
        whole["background"],
    )


def _assigned(
    said: _Reading, objects: Sequence[Mapping[str, Any]], image_size: int, groups: tuple[tuple[int, ...], ...]
) -> bool:
    """Return whether some assignment of objects to the other nouns makes the caption true."""
    if len(groups) == len(said.nouns):
        return _holds(said, [[objects[index] for index in group] for group in groups], image_size)
    noun = said.nouns[len(groups)]
    fitting = [index for index, item in enumerate(objects) if noun.fits(item)]
    options: list[tuple[int, ...]] = [(index,) for index in fitting]
    if noun.count > 1 or noun.article == "the":
        options = [tuple(fitting)] if len(fitting) == noun.count else []
    for option in options:
        taken = any(set(option).intersection(group) for group in groups)
        if not taken and _assigned(said, objects, image_size, (*groups, option)):
            return True
    return False


def _holds(said: _Reading, named: Sequence[Sequence[Mapping[str, Any]]], image_size: int) -> bool:
    """Return whether the statements about the nouns are true of the objects assigned to them."""
    for noun, items in zip(said.nouns, named, strict=True):
        if noun.different and len({item["shape"] for item in items}) < len(items):
            return False
    if said.colours is not None:
        distinct = len({item["colour"] for item in named[0]})
        if distinct != (1 if said.colours == "same" else len(named[0])):
            return False
    return (
        all(named[0][0][name] == value for name, value in said.attributes.items())
        and all(_lies(named[noun][0], where, image_size) for noun, where in said.places)
        and all(_related(named[one][0], how, named[other][0]) for one, how, other in said.relations)
    )


def _lies(item: Mapping[str, Any], where: str, image_size: int) -> bool:
    x, y = (value / image_size for value in item["centre"])
    rounding = 0.0051 / image_size  # Centres are stored with two decimals.
    low, high = 0.36 + rounding, 0.64 - rounding
    reach = 0.14 if where.startswith("near") else 0.09
    middle = max(abs(x - 0.5), abs(y - 0.5)) <= reach + rounding
    lies = {"left": x < low, "right": x > high, "top": y < low, "bottom": y > high, "middle": middle, "centre": middle}
    return all(lies[word] for word in where.split() if word in lies)


def _related(one: Mapping[str, Any], how: str, other: Mapping[str, Any]) -> bool:
    if how.endswith("than"):
        smaller, larger = (one, other) if how == "smaller than" else (other, one)
        return SIZES[smaller["size"]] < SIZES[larger["size"]]
    axis = 0 if how.endswith("of") else 1
    first, second = (one, other) if "left" in how or how == "above" else (other, one)
    # Boxes have integer pixels, so in a small image boxes of separate objects may share a pixel.
    end = first["box"][axis] + first["box"][axis + 2] - 1
    return end <= second["box"][axis] and first["centre"][axis] < second["centre"][axis]
