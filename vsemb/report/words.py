"""Image and word arithmetic (Kiros et al. 2014, section 3.2) and a projection of images and words (figure 5).

Both need families of words, such as colours or animals. An image usually shows one word of a family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vsemb.drawing.pictures import decimals
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.report.space import Found, Picture, Space
from vsemb.searching.arithmetic import combine
from vsemb.text.normalize import words_of

#: Families of words. An image usually shows one word of a family.
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
#: Synonyms within a family; arithmetic does not replace one by another.
SYNONYMS = ({"small", "little", "tiny"}, {"large", "big", "huge"}, {"gray", "grey"})
_WORDS, _SEEN, _IMAGES = 8, 3, 8
# Number of results per example of arithmetic.
_FOUND = 4
# Fallback without a family: words with at least this many letters, in at most this share of the images.
_LETTERS, _SHARE = 4, 0.3
#: Maximum number of images in the projection.
PLANE_IMAGES = 600
# Margin of the projection and height of a label, in percent.
_EDGE, _LABEL = 7.0, 5


@dataclass(frozen=True)
class Family:
    """Words of one kind that occur in a split.

    Attributes:
        name: name of the family.
        images: word -> rows of images with this word and no other of the family; most frequent word first.
    """

    name: str
    images: dict[str, list[int]]


def families(space: Space) -> list[Family]:
    """Return the families of words that occur in a split, the one with most images first.

    An image belongs to a word if at least half of its captions contain the word, and none contains another word of the
    family. If no family of `FAMILIES` occurs, the result is one family of frequent words.

    Args:
        space: the split.
    """
    known = Counter(word for said in space.said for word in said)
    known = Counter({word: count for word, count in known.items() if space.knows(word)})
    families = []
    for name, words in FAMILIES.items():
        family = _family(space, name, [word for word in words if known[word] >= _SEEN])
        if family is not None:
            families.append(family)
    if not families:
        most = _SHARE * len(space.part)
        usual = [w for w, n in known.items() if len(w) >= _LETTERS and _SEEN <= n <= most]
        usual = sorted(usual, key=lambda word: (-known[word], word))[:_WORDS]
        fallback = _family(space, "frequent words", usual)
        return [] if fallback is None else [fallback]
    return sorted(families, key=lambda family: -sum(map(len, family.images.values())))


def _family(space: Space, name: str, words: list[str]) -> Family | None:
    members = set(words)
    images: dict[str, list[int]] = {word: [] for word in words}
    for row, said in enumerate(space.said):
        shown = members & said.keys()
        if len(shown) == 1:
            word = next(iter(shown))
            if 2 * said[word] >= len(space.part.captions_of(row)):
                images[word].append(row)
    kept = sorted((word for word in words if images[word]), key=lambda word: -len(images[word]))[:_WORDS]
    if len(kept) < 2 or sum(len(images[word]) for word in kept) < _IMAGES:
        return None
    return Family(name, {word: images[word] for word in kept})


@dataclass(frozen=True)
class Example:
    """One example of arithmetic: image - word + word, and the nearest images.

    Attributes:
        picture: the image.
        minus: the word to subtract.
        plus: the word to add.
        found: the nearest other images; right if a caption contains `plus`.
    """

    picture: Picture
    minus: str
    plus: str
    found: list[Found]


def check_arithmetic(space: Space, wanted: Sequence[tuple[str, str, str]]) -> None:
    """Check that examples of arithmetic can be computed.

    Args:
        space: the split.
        wanted: examples as (image key, word to subtract, word to add).

    Raises:
        InvalidArgumentError: for a key that is missing in the split, or a text without a word of the vocabulary.
    """
    for key, minus, plus in wanted:
        if key not in space.part.keys:
            raise unknown_name("arithmetic", key, space.part.keys)
        for text in (minus, plus):
            if not any(map(space.knows, *words_of([text]))):
                allowed = "words that the run was trained with, for an image's key, MINUS and PLUS"
                raise invalid_argument("arithmetic", text, allowed)


def choose_arithmetic(families: Sequence[Family], count: int, seed: int, space: Space) -> list[tuple[str, str, str]]:
    """Draw random examples: an image with one word of a family, and another word of the family.

    Args:
        families: the families; they take turns.
        count: maximum number of examples.
        seed: random seed.
        space: the split.

    Returns:
        Examples as (image key, word to subtract, word to add), each with another image.
    """
    generator = np.random.default_rng(seed)
    chosen: list[tuple[str, str, str]] = []
    used: set[int] = set()
    # Take more turns than examples, since the images of a word may be used up.
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
    """Search with examples of arithmetic; the image itself is excluded from the results.

    Args:
        space: the split.
        wanted: examples as (image key, word to subtract, word to add).

    Raises:
        InvalidArgumentError: if the combined embedding is zero.
    """
    examples = []
    for key, minus, plus in wanted:
        row = space.part.keys.index(key)
        away, added = space.embed([minus, plus])
        target = combine(space.images[row], [away], [added], space.run.model.similarity.normalize)
        # For an asymmetric similarity, the query is scored as a text, as in `vsemb search`.
        scores = space.scores(space.images, target[None])[:, 0]
        order = np.argsort(-scores, kind="stable")
        nearest = order[order != row][:_FOUND].tolist()
        (needed,) = map(set, words_of([plus]))
        digits = decimals(scores[nearest])
        hits = [
            Found(rank, needed <= space.said[place].keys(), f"{scores[place]:.{digits}f}", space.picture(place))
            for rank, place in enumerate(nearest, 1)
        ]
        examples.append(Example(space.picture(row), minus, plus, hits))
    return examples


class Point(NamedTuple):
    """An image in the projection.

    Attributes:
        row: its row in the split.
        word: place of its word in `Plane.words`.
        x: percent from the left.
        y: percent from the top.
    """

    row: int
    word: int
    x: float
    y: float


@dataclass(frozen=True)
class Plane:
    """Images and words, projected onto two dimensions.

    Attributes:
        family: name of the family of words.
        images: the images.
        words: words with x and y, likewise.
        shares: percent of the variance along each axis.
    """

    family: str
    images: list[Point]
    words: list[tuple[str, float, float]]
    shares: tuple[float, float]


def draw_plane(space: Space, family: Family, seed: int, rows: Iterable[int]) -> Plane:
    """Project the words of a family, and images with one of them, onto their first two principal components.

    Images and words are centred separately: otherwise the first component mainly separates images from words.

    Args:
        space: the split.
        family: the family.
        seed: random seed of the choice of images.
        rows: rows of the images to choose from.
    """
    generator = np.random.default_rng(seed)
    each = max(1, PLANE_IMAGES // len(family.images))
    allowed = set(rows)
    chosen: list[tuple[int, int]] = []
    for word, of_word in enumerate(family.images.values()):
        mixed = generator.permutation([row for row in of_word if row in allowed]).astype(int)
        chosen += [(row, word) for row in mixed[:each].tolist()]
    words = list(family.images)
    vectors = [space.images[[row for row, _ in chosen]], space.embed(words)]
    points, shares = principal_components(np.concatenate([v - v.mean(axis=0) for v in vectors if len(v)]))
    low, high = points.min(axis=0), points.max(axis=0)
    places = _EDGE + (100 - 2 * _EDGE) * (points - low) / np.maximum(high - low, 1e-12)
    places[:, 1] = 100 - places[:, 1]
    x, y = places.round(1).T.tolist()
    count = len(chosen)
    return Plane(
        family.name,
        [Point(*image, *place) for image, place in zip(chosen, zip(x, y, strict=True), strict=False)],
        apart(zip(words, x[count:], y[count:], strict=True)),
        (100 * float(shares[0]), 100 * float(shares[1])),
    )


def apart(words: Iterable[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Move words up or down, towards the middle, until no label covers another.

    Args:
        words: word, x and y in percent of the plane.

    Example:

    >>> apart([("heart", 50, 30), ("ring", 52, 29), ("cross", 80, 30)])
    [('heart', 50, 30), ('ring', 52, 35), ('cross', 80, 30)]
    """
    placed: list[tuple[str, float, float]] = []
    for word, x, y in words:
        step = 1 if y < 50 else -1
        while any(abs(x - left) < len(word + other) + 4 and abs(y - top) < _LABEL for other, left, top in placed):
            y += step
        placed.append((word, x, y))
    return placed


def principal_components(embeddings: np.ndarray, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Project vectors onto their principal components.

    Args:
        embeddings: (n, dim) float, n >= 2.
        count: number of components, at most n - 1 and at most dim.

    Returns:
        points: (n, count) float64, centred. The largest entry of a component, by absolute value, is positive, so that
            the result is unique.
        shares: (count,) float64, share of the variance along each component; zeros if all vectors are equal.

    Raises:
        InvalidArgumentError: for a count out of range.
        DataError: if an embedding is not finite.

    Example:

    >>> points, shares = principal_components(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), 1)
    >>> points.round(6).tolist(), shares.tolist()
    ([[-2.0], [0.0], [2.0]], [1.0])
    """
    embeddings = np.asarray(embeddings, np.float64)
    most = min(len(embeddings) - 1, embeddings.shape[1])
    if not 1 <= count <= most:
        allowed = f"an integer from 1 to {most}" if most >= 1 else "at least two vectors to project"
        raise invalid_argument("count", count, allowed)
    if not np.isfinite(embeddings).all():
        raise DataError("Embeddings must be finite; got NaN or infinity. Train again with a lower learning rate.")
    centred = embeddings - embeddings.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions[:count]
    largest = directions[np.arange(count), np.argmax(np.abs(directions), axis=1)]
    directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
    total = float(np.sum(lengths**2))
    shares = lengths[:count] ** 2 / total if total > 0 else np.zeros(count)
    return centred @ directions.T, shares
