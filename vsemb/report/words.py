"""Words that exchange places, as a split's captions have them: colours, people, animals, …

What an image shows less one of them and plus another (Kiros et al. 2014, section 3.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.errors import invalid_argument, unknown_name
from vsemb.report.space import Picture, Space
from vsemb.search import combine
from vsemb.text.normalize import words_of

#: Words of which an image usually shows one, most telling family first.
FAMILIES: dict[str, tuple[str, ...]] = {
    "colours": (
        *("red", "blue", "green", "yellow", "orange", "pink", "purple", "turquoise"),
        *("black", "white", "brown", "gray", "grey", "tan"),
    ),
    "people": ("man", "woman", "boy", "girl", "baby", "child", "men", "women", "children"),
    "animals": ("dog", "cat", "horse", "bird", "cow", "sheep", "elephant", "bear", "zebra", "giraffe"),
    "places": ("beach", "snow", "grass", "water", "street", "field", "mountain", "park", "pool", "ocean"),
    "weather": ("sunny", "cloudy", "rainy", "snowy", "foggy", "dark", "sunset", "night", "winter", "summer"),
    "sports": ("football", "soccer", "basketball", "tennis", "baseball", "skateboard", "bike", "surfboard"),
    "shapes": ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "ring"),
    "sizes": ("small", "large", "big", "little", "tiny", "huge"),
}
#: Words of a family that say the same: to exchange one for the other shows nothing.
SYNONYMS = ({"small", "little", "tiny"}, {"large", "big", "huge"}, {"gray", "grey"})
_WORDS, _SEEN, _IMAGES = 8, 3, 8
# Images that an example of arithmetic finds.
_FOUND = 4
# Where no family fits: words of so many letters at least, in so large a share of the images at most.
_LETTERS, _SHARE = 4, 0.3


@dataclass(frozen=True)
class Family:
    """Words of one kind that occur in a split.

    Attributes:
        name: of the kind.
        images: word -> rows of the images that show it and no other word of the family; the word with
            most images first.
    """

    name: str
    images: dict[str, list[int]]


def families(space: Space) -> list[Family]:
    """Returns the families of words with which a split can be shown, those with most images first.

    An image counts for a word where at least half its captions say it and none says another word of the
    family. Where no family of `FAMILIES` occurs, the one returned consists of frequent words.
    """
    known = Counter(word for said in space.said for word in said)
    known = Counter({word: count for word, count in known.items() if space.knows(word)})
    found = []
    for name, words in FAMILIES.items():
        family = _family(space, name, [word for word in words if known[word] >= _SEEN])
        if family is not None:
            found.append(family)
    if not found:
        most = _SHARE * len(space.part)
        usual = [w for w, n in known.items() if len(w) >= _LETTERS and _SEEN <= n <= most]
        usual = sorted(usual, key=lambda word: (-known[word], word))[:_WORDS]
        fallback = _family(space, "frequent words", usual)
        return [] if fallback is None else [fallback]
    return sorted(found, key=lambda family: -sum(map(len, family.images.values())))


def _family(space: Space, name: str, words: list[str]) -> Family | None:
    members = set(words)
    images: dict[str, list[int]] = {word: [] for word in words}
    for row, said in enumerate(space.said):
        shown = members & said.keys()
        if len(shown) == 1:
            word = next(iter(shown))
            if 2 * said[word] >= len(space.part.entries[row]["captions"]):
                images[word].append(row)
    kept = sorted((word for word in words if images[word]), key=lambda word: -len(images[word]))[:_WORDS]
    if len(kept) < 2 or sum(len(images[word]) for word in kept) < _IMAGES:
        return None
    return Family(name, {word: images[word] for word in kept})


@dataclass(frozen=True)
class Example:
    """An image, a word taken away, another added, and what is found then.

    Attributes:
        picture: the image.
        minus: the word taken away.
        plus: the word added.
        found: the nearest other images, each with whether a caption of it says `plus`.
    """

    picture: Picture
    minus: str
    plus: str
    found: list[tuple[Picture, bool]]


def check_arithmetic(space: Space, wanted: Sequence[tuple[str, str, str]]) -> None:
    """Refuses examples that cannot be shown.

    Args:
        space: the split.
        wanted: image key, word taken away, word added.

    Raises:
        InvalidArgumentError: for a key that the split lacks, or words of which the run knows none.
    """
    for key, minus, plus in wanted:
        if key not in space.part.keys:
            raise unknown_name("arithmetic", key, space.part.keys)
        for text in (minus, plus):
            if not any(map(space.knows, *words_of([text]))):
                allowed = "words that the run was trained with, for an image's key, MINUS and PLUS"
                raise invalid_argument("arithmetic", text, allowed)


def choose_arithmetic(families: Sequence[Family], count: int, seed: int, space: Space) -> list[tuple[str, str, str]]:
    """Draws examples: an image that shows one word of a family, and another word of the family.

    Families take turns, the one with most images first.

    Returns:
        at most `count` of image key, word taken away, word added, no image twice.
    """
    generator = np.random.default_rng(seed)
    chosen: list[tuple[str, str, str]] = []
    used: set[int] = set()
    # More turns than examples, since a word may have no image left.
    for turn in range(10 * count if families else 0):
        if len(chosen) == count:
            break
        family = families[turn % len(families)]
        minus = str(generator.choice(list(family.images)))
        same = next((words for words in SYNONYMS if minus in words), {minus})
        others = [word for word in family.images if word not in same]
        rows = [row for row in family.images[minus] if row not in used]
        if rows and others:
            plus = str(generator.choice(others))
            row = int(generator.choice(rows))
            used.add(row)
            chosen.append((space.part.keys[row], minus, plus))
    return chosen


def work_out(space: Space, wanted: Sequence[tuple[str, str, str]]) -> list[Example]:
    """Returns what the examples find; the image itself is left out.

    Raises:
        InvalidArgumentError: if nothing of an image is left.
    """
    examples = []
    for key, minus, plus in wanted:
        row = space.part.keys.index(key)
        away, added = space.embed([minus, plus])
        target = combine(space.images[row], [away], [added], space.run.model.similarity.normalize)
        # In an order, an image that looks for images stands in for a text, as it does in `vsemb search`.
        scores = space.scores(space.images, target[None])[:, 0]
        order = np.argsort(-scores, kind="stable")
        nearest = order[order != row][:_FOUND].tolist()
        (needed,) = map(set, words_of([plus]))
        found = [(space.picture(place), needed <= space.said[place].keys()) for place in nearest]
        examples.append(Example(space.picture(row), minus, plus, found))
    return examples
