"""Captions of a scene, from abstract to complete, and which of their words name which object.

Every caption is true of its scene: counts are exact wherever a plural stands, `left of` and the like hold for
the boxes of the objects and not only for their centres, and a definite article stands only where one object
answers to the words.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vsemb.data.synthetic.world import Scene, SceneObject, pick

LEVELS = ("abstract", "names", "place", "relation", "complete")
"""What the five captions of an image tell, in their order."""

Group = tuple[int, ...]
"""Objects (their indices) that one noun phrase names together."""


class Word(NamedTuple):
    """A word and the objects that it names."""

    text: str
    objects: Group = ()


class Caption(NamedTuple):
    """A caption and its alignment: (word_index, object_index), words counted over `text.split()`."""

    text: str
    alignment: tuple[tuple[int, int], ...]


Phrase = list[Word]

_COUNTS = ("no", "one", "two", "three", "four")

# What a caption may call a thing; repeated entries are likelier.
_SYNONYMS = {
    "circle": ("circle", "circle", "circle", "disc"),
    "ring": ("ring", "ring", "ring", "hoop"),
    "small": ("small", "small", "small", "little"),
    "large": ("large", "large", "large", "big"),
    "shape": ("shape", "shape", "object"),
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above",),
    "below": ("below", "below", "under"),
    "middle": ("middle", "centre"),
}


def captions(scene: Scene, rng: random.Random) -> tuple[Caption, ...]:
    """Writes the five captions of a scene, one for each of `LEVELS`.

    Args:
        scene: the scene.
        rng: decides between the ways to say it.

    Returns:
        five captions, all different, lower case, without punctuation.

    Example:

    >>> from vsemb.data.synthetic.world import SceneObject
    >>> scene = Scene("white", (SceneObject("circle", "red", "large", x=0.3, y=0.3, extent=0.46),))
    >>> captions(scene, random.Random("1"))[4].text
    'a large red circle in the top left corner against a white background'
    """
    return tuple(_finished(getattr(_Speaker(scene, rng), level)()) for level in LEVELS)


def relation(first: SceneObject, second: SceneObject) -> str:
    """Returns how `first` lies to `second`: `"left"`, `"right"`, `"above"` or `"below"`.

    The relation holds for the whole objects: an object left of another ends before the other begins. Where
    two relations hold, the one along which the centres are further apart is returned.
    """
    dx, dy = first.x - second.x, first.y - second.y
    if abs(dx) >= abs(dy):
        return "left" if dx < 0 else "right"
    return "above" if dy < 0 else "below"


def place(item: SceneObject) -> tuple[str, ...]:
    """Returns the phrases that say truly where in the image an object is, the most telling first."""
    across = _third(item.x, "left", "right")
    down = _third(item.y, "top", "bottom")
    if across and down:
        return (f"in the {down} {across} corner", f"on the {across} side", f"at the {down}")
    if across:
        return (f"on the {across}", f"on the {across} side")
    if down:
        return (f"at the {down}",)
    if max(abs(item.x - 0.5), abs(item.y - 0.5)) <= 0.09:
        return ("in the middle",)
    return ("near the middle",)


def _third(value: float, low: str, high: str) -> str | None:
    return low if value < 0.36 else high if value > 0.64 else None


def _finished(phrase: Phrase) -> Caption:
    alignment = tuple((index, item) for index, word in enumerate(phrase) for item in word.objects)
    return Caption(" ".join(word.text for word in phrase), alignment)


def _plain(text: str) -> Phrase:
    return [Word(word) for word in text.split()]


class _Speaker:
    """Writes one caption, and calls the same thing by the same word throughout."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.scene = scene
        self.objects = scene.objects
        self.rng = rng
        self.everything: Group = tuple(range(len(scene.objects)))
        self.lexicon = {meaning: pick(rng, words) for meaning, words in _SYNONYMS.items()}

    def abstract(self) -> Phrase:
        """Counts, colours or the background, never the name of a shape."""
        everything, count = self.everything, len(self.everything)
        ways = [[*self._noun(everything, generic=True), *self._background()]]
        by_colour = self._groups(lambda item: item.colour)
        if len(by_colour) <= 2:
            ways.append(self._list(by_colour, colour=True, generic=True))
        if count == 1:
            ways.append([*self._noun(everything, generic=True), *_plain(self._place(0))])
            ways.append(self._noun(everything, size=True, generic=True))
        elif len(by_colour) == 1:
            ways.append([*self._noun(everything, generic=True), *_plain("of the same colour")])
        elif len(by_colour) == count:
            ways.append([*self._noun(everything, generic=True), *_plain("of different colours")])
        if count > 1 and len(self._groups(lambda item: item.shape)) == count:
            ways.append([Word(_COUNTS[count]), Word("different"), Word("shapes", everything)])
        if count > 1 and by_colour[0] == (0,):
            ways.append(self._noun((0,), size=True, colour=True, generic=True))
        return self._introduced(pick(self.rng, ways))

    def names(self) -> Phrase:
        """Every object by its shape, with or without its colour."""
        if self.rng.random() < 0.6:
            groups = self._groups(lambda item: item.label)
            return self._introduced(self._list(groups, colour=True))
        groups = self._groups(lambda item: item.shape)
        return self._introduced(self._list(groups))

    def place(self) -> Phrase:
        """One object, and where in the image it is."""
        index = pick(self.rng, self.everything)
        alone = len(self.everything) == 1
        size = self.rng.random() < 0.4
        colour = not (alone and size) and (not alone or self.rng.random() < 0.6)
        where = _plain(self._place(index))
        way = self.rng.random()
        if way < 0.2:
            noun = self._noun((index,), size=size, colour=colour)
            return [*where, *_plain(pick(self.rng, ("is", "there is"))), *noun]
        if way < 0.4 and self._unique(index):
            return [*self._noun((index,), size=size, colour=colour, article="the"), Word("is"), *where]
        return self._introduced([*self._noun((index,), size=size, colour=colour), *where])

    def relation(self) -> Phrase:
        """Two objects and how they lie or compare; of a single object, what it is like."""
        if len(self.everything) == 1:
            return self._attributes()
        first = pick(self.rng, self.everything)
        second = pick(self.rng, tuple(index for index in self.everything if index != first))
        how = self._relation(first, second)
        size = self.rng.random() < 0.25
        if self.objects[first].size != self.objects[second].size and self.rng.random() < 0.2:
            larger = self.objects[first].extent > self.objects[second].extent
            how, size = ("larger than" if larger else "smaller than"), False
        if self._unique(first) and self._unique(second) and self.rng.random() < 0.3:
            subject = self._noun((first,), size=size, colour=True, article="the")
            other = self._noun((second,), size=size, colour=True, article="the")
            return [*subject, Word("is"), *_plain(how), *other]
        subject = self._noun((first,), size=size, colour=True)
        alike = self.objects[first].label == self.objects[second].label
        other = self._noun((second,), size=size, colour=True, article="another" if alike and not size else "a")
        return self._introduced([*subject, *_plain(how), *other])

    def complete(self) -> Phrase:
        """Every object with size and colour, how they lie, and the background."""
        full = [self._noun((index,), size=True, colour=True) for index in self.everything]
        if len(full) == 1:
            return [*full[0], *_plain(self._place(0, telling=True)), *self._background("against")]
        kinds = self._groups(lambda item: (item.size, item.label))
        if len(kinds) < len(full):
            return [*self._list(kinds, size=True, colour=True), *self._background()]
        pair = [*full[0], *_plain(self._relation(0, 1)), *full[1]]
        if len(full) == 2:
            return [*pair, *self._background()]
        if len(full) == 3:
            third = [*full[2], *_plain(self._place(2, telling=True))]
            return [*pair, Word("and"), *third, *self._background("against")]
        other = [*full[2], *_plain(self._relation(2, 3)), *full[3]]
        return [*pair, Word("and"), *other, *self._background()]

    def _attributes(self) -> Phrase:
        only = self.objects[0]
        ways = [
            self._noun((0,), size=True, colour=True),
            [*self._noun((0,), colour=True), *self._background()],
            [
                *self._noun((0,), article="the"),
                *_plain("is"),
                *self._named(only.size, (0,)),
                *_plain("and"),
                Word(only.colour, (0,)),
            ],
        ]
        return pick(self.rng, ways)

    def _noun(
        self,
        group: Group,
        *,
        size: bool = False,
        colour: bool = False,
        generic: bool = False,
        article: str = "a",
    ) -> Phrase:
        """A noun phrase for objects that share what is told of them: `two small red stars`."""
        item = self.objects[group[0]]
        phrase = self._named(item.size, group) if size else []
        if colour:
            phrase.append(Word(item.colour, group))
        (head,) = self._named("shape" if generic else item.shape, group)
        if len(group) > 1:
            plural = "crosses" if head.text == "cross" else f"{head.text}s"
            return [Word(_COUNTS[len(group)]), *phrase, Word(plural, group)]
        phrase.append(head)
        if article == "a" and phrase[0].text[0] in "aeiou":
            article = "an"
        return [Word(article), *phrase]

    def _list(
        self, groups: Sequence[Group], *, size: bool = False, colour: bool = False, generic: bool = False
    ) -> Phrase:
        """`a and b`, `a with b and c`, `a and b with c and d`."""
        between = {1: (), 2: ("and",), 3: ("with", "and"), 4: ("and", "with", "and")}[len(groups)]
        phrase = self._noun(groups[0], size=size, colour=colour, generic=generic)
        for word, group in zip(between, groups[1:], strict=True):
            phrase += [Word(word), *self._noun(group, size=size, colour=colour, generic=generic)]
        return phrase

    def _introduced(self, phrase: Phrase) -> Phrase:
        plural = phrase[0].text in _COUNTS[2:]
        way = self.rng.random()
        if way < 0.15:
            return [*_plain("there are" if plural else "there is"), *phrase]
        if way < 0.25:
            return [*_plain(pick(self.rng, ("an image of", "a picture of"))), *phrase]
        return phrase

    def _background(self, preposition: str = "on") -> Phrase:
        return _plain(f"{preposition} a {self.scene.background} background")

    def _named(self, meaning: str, group: Group) -> Phrase:
        return [Word(self.lexicon.get(meaning, meaning), group)]

    def _place(self, index: int, telling: bool = False) -> str:
        ways = place(self.objects[index])
        return (ways[0] if telling else pick(self.rng, ways)).replace("middle", self.lexicon["middle"])

    def _relation(self, first: int, second: int) -> str:
        return self.lexicon[relation(self.objects[first], self.objects[second])]

    def _unique(self, index: int) -> bool:
        return sum(item.label == self.objects[index].label for item in self.objects) == 1

    def _groups(self, key: Callable[[SceneObject], object]) -> list[Group]:
        groups: dict[object, list[int]] = {}
        for index, item in enumerate(self.objects):
            groups.setdefault(key(item), []).append(index)
        return [tuple(group) for group in groups.values()]
