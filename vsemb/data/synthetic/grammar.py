"""Captions of a scene, from abstract to complete, with the alignment of their words to objects.

Every caption is true of its scene. Plural nouns have exact counts. A relation such as `left of` holds for the whole
objects, not only their centres. A noun phrase with `the` describes exactly one object.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from vsemb.data.synthetic.world import Scene, SceneObject, pick

LEVELS = ("abstract", "names", "place", "relation", "complete")
"""What the five captions of an image tell, in their order."""

Group = tuple[int, ...]
"""Objects (their indices) that one noun phrase names together."""

Phrase = str
"""Words, those that name objects with their indices behind a slash: `two small/02 rings/02 and a star/1`."""


class Caption(NamedTuple):
    """A caption and its alignment: (word_index, object_index), words counted over `text.split()`."""

    text: str
    alignment: tuple[tuple[int, int], ...]


_COUNTS = ("no", "one", "two", "three", "four")

# Synonyms that captions use; repeated entries are more probable.
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
    """Write the five captions of a scene, one for each of `LEVELS`.

    Args:
        scene: the scene.
        rng: chooses the phrasing.

    Returns:
        Five different captions, in lower case, without punctuation.

    Example:

    >>> from vsemb.data.synthetic.world import SceneObject
    >>> scene = Scene("white", (SceneObject("circle", "red", "large", x=0.3, y=0.3, extent=0.46),))
    >>> captions(scene, random.Random("1"))[4].text
    'a large red circle in the top left corner against a white background'
    """
    return tuple(_finished(getattr(_Speaker(scene, rng), level)()) for level in LEVELS)


def _finished(phrase: Phrase) -> Caption:
    words, alignment = [], []
    for number, word in enumerate(phrase.split()):
        text, _, objects = word.partition("/")
        words.append(text)
        alignment += [(number, int(index)) for index in objects]
    return Caption(" ".join(words), tuple(alignment))


def relation(first: SceneObject, second: SceneObject) -> str:
    """Return the position of `first` relative to `second`: `"left"`, `"right"`, `"above"` or `"below"`.

    The relation holds for the whole objects: an object left of another ends before the other begins. If two
    relations hold, the result is the one in whose direction the centres are further apart.
    """
    dx, dy = first.x - second.x, first.y - second.y
    if abs(dx) >= abs(dy):
        return "left" if dx < 0 else "right"
    return "above" if dy < 0 else "below"


def place(item: SceneObject) -> tuple[str, ...]:
    """Return the true phrases for an object's position in the image, the most specific first."""
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
    if value < 0.36:
        return low
    return high if value > 0.64 else None


class _Speaker:
    """Write one caption, with the same word for the same thing throughout."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.scene = scene
        self.objects = scene.objects
        self.rng = rng
        self.everything: Group = tuple(range(len(scene.objects)))
        self.lexicon = {meaning: pick(rng, words) for meaning, words in _SYNONYMS.items()}

    def abstract(self) -> Phrase:
        """Describe counts, colours or the background, without naming a shape."""
        everything, count = self.everything, len(self.everything)
        shapes = self._noun(everything, generic=True)
        ways = [f"{shapes} {self._background()}"]
        by_colour = self._groups("colour")
        if len(by_colour) <= 2:
            ways.append(self._list(by_colour, colour=True, generic=True))
        if count == 1:
            ways.append(f"{shapes} {self._place(0)}")
            ways.append(self._noun(everything, size=True, generic=True))
        elif len(by_colour) == 1:
            ways.append(f"{shapes} of the same colour")
        elif len(by_colour) == count:
            ways.append(f"{shapes} of different colours")
        if count > 1 and len(self._groups("shape")) == count:
            ways.append(f"{_COUNTS[count]} different {_naming('shapes', everything)}")
        if count > 1 and by_colour[0] == (0,):
            ways.append(self._noun((0,), size=True, colour=True, generic=True))
        return self._introduced(pick(self.rng, ways))

    def names(self) -> Phrase:
        """Name every object by its shape, with or without its colour."""
        colour = self.rng.random() < 0.6
        return self._introduced(self._list(self._groups("label" if colour else "shape"), colour=colour))

    def place(self) -> Phrase:
        """Describe one object and its position in the image."""
        index = pick(self.rng, self.everything)
        alone = len(self.everything) == 1
        size = self.rng.random() < 0.4
        colour = not (alone and size) and (not alone or self.rng.random() < 0.6)
        where = self._place(index)
        way = self.rng.random()
        noun = self._noun((index,), size=size, colour=colour)
        if way < 0.2:
            return f"{where} {pick(self.rng, ('is', 'there is'))} {noun}"
        if way < 0.4 and self._unique(index):
            return f"{self._noun((index,), size=size, colour=colour, article='the')} is {where}"
        return self._introduced(f"{noun} {where}")

    def relation(self) -> Phrase:
        """Relate two objects by position or size; describe the attributes of a single object."""
        if len(self.everything) == 1:
            return self._attributes()
        first = pick(self.rng, self.everything)
        second = pick(self.rng, tuple(index for index in self.everything if index != first))
        how = self._relation(first, second)
        size = self.rng.random() < 0.25
        one, other = self.objects[first], self.objects[second]
        if one.size != other.size and self.rng.random() < 0.2:
            how, size = ("larger than" if one.extent > other.extent else "smaller than"), False
        if self._unique(first) and self._unique(second) and self.rng.random() < 0.3:
            the = [self._noun((index,), size=size, colour=True, article="the") for index in (first, second)]
            return f"{the[0]} is {how} {the[1]}"
        article = "another" if one.label == other.label and not size else "a"
        subject = self._noun((first,), size=size, colour=True)
        return self._introduced(f"{subject} {how} {self._noun((second,), size=size, colour=True, article=article)}")

    def complete(self) -> Phrase:
        """Describe every object with size and colour, their positions, and the background."""
        full = [self._noun((index,), size=True, colour=True) for index in self.everything]
        if len(full) == 1:
            return f"{full[0]} {self._place(0, telling=True)} {self._background('against')}"
        kinds = self._groups("size", "label")
        if len(kinds) < len(full):
            return f"{self._list(kinds, size=True, colour=True)} {self._background()}"
        pair = f"{full[0]} {self._relation(0, 1)} {full[1]}"
        if len(full) == 2:
            return f"{pair} {self._background()}"
        if len(full) == 3:
            return f"{pair} and {full[2]} {self._place(2, telling=True)} {self._background('against')}"
        return f"{pair} and {full[2]} {self._relation(2, 3)} {full[3]} {self._background()}"

    def _attributes(self) -> Phrase:
        size, colour = self._named(self.objects[0].size, (0,)), _naming(self.objects[0].colour, (0,))
        ways = [
            self._noun((0,), size=True, colour=True),
            f"{self._noun((0,), colour=True)} {self._background()}",
            f"{self._noun((0,), article='the')} is {size} and {colour}",
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
        """Return a noun phrase for objects that share the named attributes: `two small red stars`."""
        item = self.objects[group[0]]
        words = [self._named(item.size, group)] * size + [_naming(item.colour, group)] * colour
        head = "shape" if generic else item.shape
        head = self.lexicon.get(head, head)
        if len(group) > 1:
            article = _COUNTS[len(group)]
            head = "crosses" if head == "cross" else f"{head}s"
        words.append(_naming(head, group))
        if article == "a" and words[0][0] in "aeiou":
            article = "an"
        return " ".join([article, *words])

    def _list(self, groups: Sequence[Group], **told: Any) -> Phrase:
        """Join noun phrases: `a and b`, `a with b and c`, `a and b with c and d`."""
        nouns = [self._noun(group, **told) for group in groups]
        form = ("{}", "{} and {}", "{} with {} and {}", "{} and {} with {} and {}")[len(nouns) - 1]
        return form.format(*nouns)

    def _introduced(self, phrase: Phrase) -> Phrase:
        way = self.rng.random()
        if way < 0.15:
            return f"there {'are' if phrase.startswith(_COUNTS[2:]) else 'is'} {phrase}"
        if way < 0.25:
            return f"{pick(self.rng, ('an image of', 'a picture of'))} {phrase}"
        return phrase

    def _background(self, preposition: str = "on") -> Phrase:
        return f"{preposition} a {self.scene.background} background"

    def _named(self, meaning: str, group: Group) -> Phrase:
        return _naming(self.lexicon.get(meaning, meaning), group)

    def _place(self, index: int, telling: bool = False) -> Phrase:
        ways = place(self.objects[index])
        return (ways[0] if telling else pick(self.rng, ways)).replace("middle", self.lexicon["middle"])

    def _relation(self, first: int, second: int) -> Phrase:
        return self.lexicon[relation(self.objects[first], self.objects[second])]

    def _unique(self, index: int) -> bool:
        return sum(item.label == self.objects[index].label for item in self.objects) == 1

    def _groups(self, *names: str) -> list[Group]:
        """Group the objects that have equal values of some attributes."""
        groups: dict[object, list[int]] = {}
        for index, item in enumerate(self.objects):
            groups.setdefault(attrgetter(*names)(item), []).append(index)
        return [tuple(group) for group in groups.values()]


def _naming(word: str, group: Group) -> Phrase:
    return f"{word}/{''.join(map(str, group))}"
