"""Captions of scenes, read: what noun phrases and what of them one of the grammar's captions says.

Any caption made of the phrases of `vsemb.data.synthetic.grammar`, put together as there, is understood,
whoever wrote it; every other is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from vsemb.data.synthetic.world import BACKGROUNDS, COLOURS, SHAPES, SIZES

_PLURALS = {("crosses" if shape == "cross" else f"{shape}s"): shape for shape in SHAPES}
_PLURALS |= {"discs": "circle", "hoops": "ring", "shapes": "", "objects": ""}
_HEADS = {shape: shape for shape in SHAPES} | {"disc": "circle", "hoop": "ring", "shape": "", "object": ""}
_SIZES = {size: size for size in SIZES} | {"little": "small", "big": "large"}
_COUNTS = {"two": 2, "three": 3, "four": 4}
_RELATIONS = {
    ("left", "of"): "left",
    ("to", "the", "left", "of"): "left",
    ("right", "of"): "right",
    ("to", "the", "right", "of"): "right",
    ("above",): "above",
    ("below",): "below",
    ("under",): "below",
    ("larger", "than"): "larger",
    ("smaller", "than"): "smaller",
}
_PLACES: dict[tuple[str, ...], tuple[str, ...]] = {
    **{
        ("in", "the", down, across, "corner"): (down, across)
        for down in ("top", "bottom")
        for across in ("left", "right")
    },
    **{("on", "the", across, "side"): (across,) for across in ("left", "right")},
    **{("on", "the", across): (across,) for across in ("left", "right")},
    **{("at", "the", down): (down,) for down in ("top", "bottom")},
    **{("in", "the", word): ("middle",) for word in ("middle", "centre")},
    **{("near", "the", word): ("near",) for word in ("middle", "centre")},
}
# The longest first, so that `on the left side` is not read as `on the left`.
_PLACES_BY_LENGTH = sorted(_PLACES, key=len, reverse=True)


class _NotUnderstoodError(Exception):
    """The caption is none of the grammar's."""


@dataclass(frozen=True)
class Noun:
    """A noun phrase: article or number, what it says of its objects; "" for what it does not say."""

    article: str
    size: str
    colour: str
    shape: str
    different: bool = False

    @property
    def count(self) -> int:
        return _COUNTS.get(self.article, 1)

    def fits(self, item: Mapping[str, Any]) -> bool:
        return all(
            wanted in ("", item[name])
            for name, wanted in (("size", self.size), ("colour", self.colour), ("shape", self.shape))
        )


@dataclass(frozen=True)
class Reading:
    """What a caption says.

    Attributes:
        nouns: in their order; they name different objects.
        places: noun -> the sides or the middle where its object is.
        relations: (noun, how, noun).
        attributes: size and colour that the first noun's object is said to be.
        colours: `same` or `different` of the only noun's objects, or "".
        background: or "".
    """

    nouns: tuple[Noun, ...]
    places: dict[int, tuple[str, ...]]
    relations: tuple[tuple[int, str, int], ...]
    attributes: dict[str, str]
    colours: str = ""
    background: str = ""


def read_caption(caption: str) -> Reading | None:
    """Reads a caption.

    Args:
        caption: in lower or upper case, with or without a full stop.

    Returns:
        what it says; None where it is not understood.

    Example:

    >>> said = read_caption("A red star above two rings")
    >>> said is None, read_caption("two rings with a red star").nouns[1].colour
    (True, 'red')
    """
    try:
        return _Reader(caption).read()
    except _NotUnderstoodError:
        return None


class _Reader:
    """Reads one caption, word after word."""

    def __init__(self, caption: str) -> None:
        self.words = caption.lower().strip().removesuffix(".").split()
        self.at = 0
        self.nouns: list[Noun] = []
        self.places: dict[int, tuple[str, ...]] = {}
        self.relations: list[tuple[int, str, int]] = []
        self.attributes: dict[str, str] = {}

    def read(self) -> Reading:
        """Reads all of it.

        Raises:
            _NotUnderstoodError: if that cannot be done.
        """
        colours = background = ""
        where = self._place()
        if where is not None:
            self._inverted(where)
        else:
            introduced = self._introduction()
            self._clause(sentence=not introduced)
            while self._take("and") or self._take("with"):
                self._clause()
            colours = self._colours()
            background = self._background()
        if self.at < len(self.words):
            self._fail()
        return Reading(tuple(self.nouns), self.places, tuple(self.relations), self.attributes, colours, background)

    def _inverted(self, where: tuple[str, ...]) -> None:
        """`at the top there is a red star`."""
        if not (self._take("is") or self._take("there", "is")):
            self._fail()
        self.places[self._noun(plural=False)] = where

    def _introduction(self) -> bool:
        if self._take("an", "image", "of") or self._take("a", "picture", "of"):
            return True
        for verb, plural in (("is", False), ("are", True)):
            if self._take("there", verb):
                if self._next() == "the" or (self._next() in _COUNTS) != plural:
                    self._fail()
                return True
        return False

    def _clause(self, sentence: bool = False) -> None:
        """A noun phrase and what is said of it; a sentence may say it with `is`."""
        noun = self._noun()
        verb = sentence and noun == 0 and self._take("is")
        where, how = self._place(), None
        if where is None:
            how = self._relation()
        if self.nouns[noun].count > 1 and (verb or where or how):
            self._fail()  # Is `two stars at the top` all the stars, or all that are there?
        if where is not None:
            self.places[noun] = where
        elif how is not None:
            self.relations.append((noun, how, self._noun(plural=False)))
        elif verb:
            self._attributes(noun)

    def _attributes(self, noun: int) -> None:
        """`the ring is small and red`."""
        said = self.nouns[noun]
        size, word, colour = self._word(), self._word(), self._word()
        if size not in _SIZES or word != "and" or colour not in COLOURS or said.size or said.colour:
            self._fail()
        self.attributes = {"size": _SIZES[size], "colour": colour}

    def _noun(self, plural: bool | None = None) -> int:
        """Reads a noun phrase and returns its number."""
        article = self._word()
        many = article in _COUNTS
        if not many and article not in ("a", "an", "the", "another") or plural is not None and many != plural:
            self._fail()
        first = self._next()
        if article in ("a", "an") and (article == "an") != first.startswith(tuple("aeiou")):
            self._fail()
        different = many and self._take("different")
        size = _SIZES.get(self._next(), "")
        self.at += bool(size)
        colour = self._next() if self._next() in COLOURS else ""
        self.at += bool(colour)
        head = self._word()
        heads = _PLURALS if many else _HEADS
        if head not in heads or (different and (size or colour or head != "shapes")):
            self._fail()
        noun = Noun(article, size, colour, heads[head], different)
        if article == "another" and not self._repeats(noun):
            self._fail()
        self.nouns.append(noun)
        return len(self.nouns) - 1

    def _repeats(self, noun: Noun) -> bool:
        """Whether `another` speaks of the same kind of thing as the noun before."""
        return bool(self.nouns) and (self.nouns[-1].colour, self.nouns[-1].shape) == (noun.colour, noun.shape)

    def _place(self) -> tuple[str, ...] | None:
        return next((_PLACES[words] for words in _PLACES_BY_LENGTH if self._take(*words)), None)

    def _relation(self) -> str | None:
        return next((how for words, how in _RELATIONS.items() if self._take(*words)), None)

    def _colours(self) -> str:
        found = ""
        if self._take("of", "the", "same", "colour"):
            found = "same"
        elif self._take("of", "different", "colours"):
            found = "different"
        if found and (len(self.nouns) != 1 or self.nouns[0].count == 1):
            self._fail()
        return found

    def _background(self) -> str:
        if not (self._take("on", "a") or self._take("against", "a")):
            return ""
        background = self._word()
        if background not in BACKGROUNDS or not self._take("background"):
            self._fail()
        return background

    def _next(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _word(self) -> str:
        word = self._next()
        self.at += 1
        return word

    def _take(self, *words: str) -> bool:
        """Moves behind these words if they are next."""
        if tuple(self.words[self.at : self.at + len(words)]) != words:
            return False
        self.at += len(words)
        return True

    def _fail(self) -> NoReturn:
        raise _NotUnderstoodError
