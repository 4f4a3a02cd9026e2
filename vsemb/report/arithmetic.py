"""Arithmetic with images and words (Kiros et al. 2014, section 3.2): a blue car - "blue" + "red"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vsemb.errors import invalid_argument, unknown_name
from vsemb.report.space import Picture, Space
from vsemb.report.words import SYNONYMS, Family
from vsemb.search import combine
from vsemb.text.normalize import words_of

#: Results shown of an example.
SHOWN = 4


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
        nearest = order[order != row][:SHOWN].tolist()
        (needed,) = map(set, words_of([plus]))
        found = [(space.picture(place), needed <= space.said[place].keys()) for place in nearest]
        examples.append(Example(space.picture(row), minus, plus, found))
    return examples
