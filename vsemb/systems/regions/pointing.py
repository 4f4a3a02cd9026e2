"""Pointing metrics: share of caption words whose region overlaps the object that the word names.

A word is correct if its region overlaps one of its objects with an intersection over union of `THRESHOLD` or more.
`vsemb.systems.regions.pointing_task` measures a run by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsemb.errors import DataError

#: Minimum intersection over union of a correct region with an object.
THRESHOLD = 0.5
# Boxes are float32 fractions of the image, so an overlap of exactly the threshold may round below it.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class PointingShare:
    """Shares of words and of nouns, in percent.

    Attributes:
        words: share of all words that name objects.
        nouns: share of the nouns among them, see `object_nouns`.
        intervals: 95 % bootstrap intervals of both, over images; None if not computed.
    """

    words: float
    nouns: float
    intervals: dict[str, list[float]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; intervals only if they were computed."""
        values: dict[str, Any] = {"words": self.words, "nouns": self.nouns}
        return values if self.intervals is None else values | {"intervals_95": self.intervals}


@dataclass(frozen=True)
class PointingMetrics:
    """The result of `evaluate_pointing`.

    Attributes:
        accuracy: affinity -> share of correct words; affinity 0 is without smoothing.
        chance: expected share if each word takes a random region of its image, computed exactly.
        whole_image: share if every word takes the whole image.
        ceiling: share of words for which a correct region exists.
        images: number of images.
        words: number of words.
        nouns: number of nouns among the words.
        undecided: number of words without a region, counted as wrong. They are beyond the maximum text length, have no
            letter or digit, or have a zero vector, which counts as padding.
        regions: mean number of regions to choose from, over words.
    """

    accuracy: dict[float, PointingShare]
    chance: PointingShare
    whole_image: PointingShare
    ceiling: PointingShare
    images: int
    words: int
    nouns: int
    undecided: int
    regions: float

    def best_affinity(self) -> float:
        """Return the affinity with most correct words; ties select the smallest."""
        return min(self.accuracy, key=lambda affinity: (-self.accuracy[affinity].words, affinity))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `accuracy` becomes a list, since JSON keys cannot be numbers."""
        values = dict(vars(self))
        for name in ("chance", "whole_image", "ceiling"):
            values[name] = values[name].to_json()
        values["accuracy"] = [{"affinity": affinity, **share.to_json()} for affinity, share in self.accuracy.items()]
        return values


def box_iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Compute the intersection over union of all pairs of boxes.

    Args:
        boxes: (..., n, 4) [x, y, w, h] in any unit.
        others: (..., m, 4) [x, y, w, h] in the same unit.

    Returns:
        (..., n, m) float64 in [0, 1]; 0 for boxes without area, such as padding.

    Example: the second box is the left half of the first.

    >>> box_iou(np.array([[0, 0, 4, 2]]), np.array([[0, 0, 2, 2], [4, 0, 1, 1]])).tolist()
    [[0.5, 0.0]]
    """
    first = np.asarray(boxes, np.float64)[..., :, None, :]  # (..., n, 1, 4)
    second = np.asarray(others, np.float64)[..., None, :, :]  # (..., 1, m, 4)
    starts = np.maximum(first[..., :2], second[..., :2])
    ends = np.minimum(first[..., :2] + first[..., 2:], second[..., :2] + second[..., 2:])
    shared = np.prod(np.maximum(ends - starts, 0), axis=-1)
    union = np.prod(first[..., 2:], axis=-1) + np.prod(second[..., 2:], axis=-1) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)


def named_objects(alignment: Iterable[Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Return the objects that each word names.

    Args:
        alignment: (word, object) pairs of one caption, see `vsemb.data.records.ImageRecord`.

    Returns:
        word -> its objects, both ascending; words without objects are left out.

    Example: "two red rings", a plural of objects 0 and 2.

    >>> named_objects([(1, 0), (1, 2), (2, 0), (2, 2)])
    {1: (0, 2), 2: (0, 2)}
    """
    objects: dict[int, set[int]] = {}
    for word, item in alignment:
        objects.setdefault(int(word), set()).add(int(item))
    return {word: tuple(sorted(objects[word])) for word in sorted(objects)}


def object_nouns(named: Mapping[int, tuple[int, ...]]) -> set[int]:
    """Return the nouns among the words that name objects, found by word positions alone.

    The noun of some objects is the last word of the first run of neighbouring words that name exactly these objects.
    Later words that name the same objects are not nouns, since they may be predicates ("the square is large and
    yellow"). The rule holds for English, where adjectives precede their noun.

    Args:
        named: word -> its objects, from `named_objects`.

    Returns:
        Positions of the nouns.

    Example: "a turquoise ring", "the square is large and yellow".

    >>> object_nouns({1: (0,), 2: (0,)}), object_nouns({1: (0,), 3: (0,), 5: (0,)})
    ({2}, {1})
    """
    nouns: dict[tuple[int, ...], int] = {}
    for word in sorted(named):
        objects = named[word]
        if nouns.get(objects, word - 1) == word - 1:
            nouns[objects] = word
    return set(nouns.values())


def right_regions(regions: np.ndarray, objects: np.ndarray, named: Sequence[Sequence[int]]) -> np.ndarray:
    """Return which regions of an image are correct for each word.

    Args:
        regions: (regions, 4) boxes [x, y, w, h]; a box of zeros is padding and never correct.
        objects: (objects, 4) boxes in the same unit.
        named: objects per word.

    Returns:
        (words, regions) bool.

    Raises:
        DataError: if a word names an object that does not exist.

    Example: both objects of a plural are correct.

    >>> objects = np.array([[0, 0, 1, 1], [5, 5, 2, 2]])
    >>> right_regions(np.array([[0, 0, 9, 9], [0, 0, 1, 1], [5, 5, 2, 3]]), objects, [[0], [0, 1]]).tolist()
    [[False, True, False], [False, True, True]]
    """
    overlaps = box_iou(regions, objects) >= THRESHOLD - _ROUNDING  # (regions, objects)
    names = np.zeros((len(named), overlaps.shape[1]), bool)  # (words, objects)
    for word, items in enumerate(named):
        wrong = [item for item in items if not 0 <= item < names.shape[1]]
        if wrong:
            raise DataError(f"A word names object {wrong[0]} of {names.shape[1]}, counted from 0.")
        names[word, list(items)] = True
    return np.asarray((names[:, None] & overlaps[None]).any(axis=-1))


def evaluate_pointing(
    right: np.ndarray,
    real: np.ndarray,
    chosen: Mapping[float, np.ndarray],
    nouns: np.ndarray,
    images: np.ndarray,
    *,
    bootstrap: int = 0,
) -> PointingMetrics:
    """Compute pointing metrics of the words of many images.

    Args:
        right: (words, regions) bool, from `right_regions`. Region 0 is the whole image.
        real: (words, regions) bool, false for padding.
        chosen: affinity -> (words,) int, the region of each word; -1 for words without a region.
        nouns: (words,) bool, true for nouns.
        images: (words,) int, the image of each word.
        bootstrap: number of resamplings of the images for 95 % intervals; 0 for no intervals.

    Returns:
        The metrics.

    Raises:
        DataError: if words or nouns are missing.

    Example: two words of one image with two regions; for the first word only the second region is correct.

    >>> right, real = np.array([[False, True], [True, True]]), np.ones((2, 2), bool)
    >>> chosen = {0.0: np.array([0, 1]), 1.0: np.array([1, 1])}
    >>> metrics = evaluate_pointing(right, real, chosen, np.array([True, False]), np.zeros(2, int))
    >>> [share.words for share in metrics.accuracy.values()], metrics.chance.words, metrics.best_affinity()
    ([50.0, 100.0], 75.0, 1.0)
    """
    if not len(right) or not nouns.any():
        raise DataError("Pointing needs words that name an object; the split has none.")
    right = right & real

    def share(values: np.ndarray) -> PointingShare:
        parts = {"words": np.ones(len(right), bool), "nouns": nouns}
        means = {name: 100 * float(values[part].mean()) for name, part in parts.items()}
        intervals = None
        if bootstrap:
            intervals = {name: _interval(values[part], images[part], bootstrap) for name, part in parts.items()}
        return PointingShare(**means, intervals=intervals)

    words, regions = np.arange(len(right)), real.sum(axis=1)
    return PointingMetrics(
        accuracy={affinity: share(right[words, region] & (region >= 0)) for affinity, region in chosen.items()},
        chance=share(right.sum(axis=1) / np.maximum(regions, 1)),
        whole_image=share(right[:, 0]),
        ceiling=share(np.asarray(right.any(axis=1))),
        images=len(np.unique(images)),
        words=len(right),
        nouns=int(nouns.sum()),
        undecided=int((next(iter(chosen.values())) < 0).sum()),
        regions=float(regions.mean()),
    )


def _interval(values: np.ndarray, images: np.ndarray, resamplings: int) -> list[float]:
    """Compute a bootstrap interval over images, since words of one image are not independent."""
    numbers, rows = np.unique(images, return_inverse=True)
    sums, counts = np.bincount(rows, weights=values), np.bincount(rows)
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(resamplings):
        draw = generator.integers(len(numbers), size=len(numbers))
        drawn.append(100 * float(sums[draw].sum() / counts[draw].sum()))
    return [float(value) for value in np.percentile(drawn, [2.5, 97.5])]


def score_spread(blocks: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """Compute the standard deviation of the scores of a word's regions, over all words.

    The mean of each word's scores is subtracted first. An affinity (beta of Karpathy and Fei-Fei 2015, equation 12)
    must outweigh the difference between the best region of a word and its other regions.

    Args:
        blocks: blocks of captions: scores (captions, steps, regions), with any values for padding; word mask (captions,
            steps) bool; region mask (captions, regions) bool.

    Returns:
        The standard deviation; 0 without scores, NaN or infinity if a score is.

    Example: the means are 2 and 5, so each of the four scores is 1 away from its mean.

    >>> score_spread([(np.array([[[1.0, 3.0], [4.0, 6.0]]]), np.ones((1, 2), bool), np.ones((1, 2), bool))])
    1.0
    """
    squares, count = 0.0, 0
    for scores, words, regions in blocks:
        real = words[:, :, None] & regions[:, None]
        values = np.where(real, scores, 0).astype(np.float64)
        means = values.sum(axis=2, keepdims=True) / np.maximum(real.sum(axis=2, keepdims=True), 1)
        # If a score is NaN or infinite, so is the result.
        with np.errstate(invalid="ignore"):
            squares += float(np.where(real, (values - means) ** 2, 0).sum())
        count += int(real.sum())
    return math.sqrt(squares / max(count, 1))
