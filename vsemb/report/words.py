"""Words that exchange places: colours, people, animals, … as a split's captions have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vsemb.report.space import Space

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
