"""Pointing: whether the region that a word chose lies on what the word names.

Needs data that know it: the boxes of an image's objects, and which words of its captions name which of
them. A word is right where its region overlaps one of its objects well enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsemb.errors import DataError, invalid_argument

# Boxes of regions are float32 fractions of the image, so an overlap of exactly the threshold may round below.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class PointingShare:
    """Shares of words and of nouns, in percent.

    Attributes:
        words: of all words that name objects.
        nouns: of the nouns among these, see `object_nouns`.
        intervals: 95 % bootstrap intervals of both, over images, where asked for.
    """

    words: float
    nouns: float
    intervals: dict[str, list[float]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; the intervals only where they were computed."""
        values: dict[str, Any] = {"words": self.words, "nouns": self.nouns}
        return values if self.intervals is None else values | {"intervals_95": self.intervals}


@dataclass(frozen=True)
class PointingMetrics:
    """The result of `evaluate_pointing`.

    Attributes:
        accuracy: affinity -> share of the words that are right; affinity 0 is without smoothing.
        chance: what a region drawn at random from those of the image is worth, exactly.
        whole_image: what pointing at the whole image always is worth.
        ceiling: the share of the words for which a right region exists.
        images: number of images.
        words: number of words.
        nouns: number of nouns among them.
        undecided: words that chose no region and count as wrong: they stand behind the longest text that the
            model reads, have no letter or digit, or their vector is zero, which is no item of a set.
        regions: regions to choose from, the mean over words.
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
        """Returns the affinity with most words right; of equal ones the smallest."""
        return min(self.accuracy, key=lambda affinity: (-self.accuracy[affinity].words, affinity))

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; `accuracy` as a list, since keys of JSON are no numbers."""
        values = dict(vars(self))
        for name in ("chance", "whole_image", "ceiling"):
            values[name] = values[name].to_json()
        values["accuracy"] = [{"affinity": affinity, **share.to_json()} for affinity, share in self.accuracy.items()]
        return values


def box_iou(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the intersection over union of every box with every other.

    Args:
        boxes: (..., n, 4) [x, y, w, h] in any unit, the same for both.
        others: (..., m, 4).

    Returns:
        (..., n, m) float64 in [0, 1]; 0 where a box has no area, as padding has none.

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
    """Returns the objects that each word names.

    Args:
        alignment: (word, object) pairs of one caption, as `vsemb.data.records.ImageRecord` has them.

    Returns:
        word -> its objects, both ascending; words that name none are left out.

    Example: "two red rings", a plural of objects 0 and 2.

    >>> named_objects([(1, 0), (1, 2), (2, 0), (2, 2)])
    {1: (0, 2), 2: (0, 2)}
    """
    found: dict[int, set[int]] = {}
    for word, item in alignment:
        found.setdefault(int(word), set()).add(int(item))
    return {word: tuple(sorted(found[word])) for word in sorted(found)}


def object_nouns(named: Mapping[int, tuple[int, ...]]) -> set[int]:
    """Tells the nouns among the words that name objects, by their places alone.

    The noun of some objects is the last word of the first run of neighbouring words that name exactly
    these. What names the same objects later in the caption is no noun, since it may as well be said of them
    ("the square is large and yellow"). This is English, where adjectives stand before their noun.

    Args:
        named: word -> its objects, from `named_objects`.

    Returns:
        the words.

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


def right_regions(
    regions: np.ndarray, objects: np.ndarray, named: Sequence[Sequence[int]], threshold: float = 0.5
) -> np.ndarray:
    """Tells which regions of an image would be right for each word.

    Args:
        regions: (regions, 4) boxes [x, y, w, h]; a box of zeros is padding and never right.
        objects: (objects, 4) boxes in the same unit.
        named: for each word the objects that it names.
        threshold: a region is right for an object from this intersection over union on.

    Returns:
        (words, regions) bool.

    Raises:
        InvalidArgumentError: for a threshold outside (0, 1].
        DataError: if a word names an object that is not there.

    Example: a plural is right on either object.

    >>> objects = np.array([[0, 0, 1, 1], [5, 5, 2, 2]])
    >>> right_regions(np.array([[0, 0, 9, 9], [0, 0, 1, 1], [5, 5, 2, 3]]), objects, [[0], [0, 1]]).tolist()
    [[False, True, False], [False, True, True]]
    """
    check_threshold(threshold)
    overlaps = box_iou(regions, objects) >= threshold - _ROUNDING  # (regions, objects)
    names = np.zeros((len(named), overlaps.shape[1]), bool)  # (words, objects)
    for word, items in enumerate(named):
        wrong = [item for item in items if not 0 <= item < names.shape[1]]
        if wrong:
            raise DataError(f"A word names object {wrong[0]} of {names.shape[1]}, counted from 0.")
        names[word, list(items)] = True
    return np.asarray((names[:, None] & overlaps[None]).any(axis=-1))


def check_threshold(threshold: float) -> None:
    """Refuses what is no share of an overlap.

    Args:
        threshold: see `right_regions`.

    Raises:
        InvalidArgumentError: outside (0, 1].

    Example:

    >>> check_threshold(0.5)
    """
    if not 0 < threshold <= 1:
        raise invalid_argument("threshold", threshold, "a number > 0 and <= 1")


def pointing_accuracy(right: np.ndarray, chosen: np.ndarray) -> float:
    """Returns the share of words that chose a right region, in [0, 1].

    Args:
        right: (words, regions) bool, from `right_regions`.
        chosen: (words,) int, the region of each word; -1 where it has none, which is wrong.

    Raises:
        DataError: for no words.

    Example:

    >>> right = np.array([[False, True], [False, True], [True, True]])
    >>> round(pointing_accuracy(right, np.array([1, 0, -1])), 3)
    0.333
    """
    if not len(right):
        raise DataError("There are no words to measure.")
    return float(_hits(right, chosen).mean())


def _hits(right: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    chosen = np.asarray(chosen)
    return right[np.arange(len(right)), chosen] & (chosen >= 0)


def evaluate_pointing(
    right: np.ndarray,
    real: np.ndarray,
    chosen: Mapping[float, np.ndarray],
    nouns: np.ndarray,
    images: np.ndarray,
    *,
    bootstrap: int = 0,
    seed: int = 0,
) -> PointingMetrics:
    """Measures pointing of the words of many images.

    Args:
        right: (words, regions) bool, from `right_regions`. Region 0 is the whole image.
        real: (words, regions) bool, the regions that the word's image has; the rest is padding.
        chosen: affinity -> (words,) int, the region of each word; -1 for words that chose none.
        nouns: (words,) bool, which are nouns.
        images: (words,) int, the image of each word.
        bootstrap: number of resamplings of the images for 95 % intervals; 0 for none.
        seed: of the resampling.

    Raises:
        InvalidArgumentError: for bootstrap < 0, or nothing chosen.
        DataError: for no words, or no nouns.

    Example: two words of one image with two regions; the first is right on the second region only.

    >>> right, real = np.array([[False, True], [True, True]]), np.ones((2, 2), bool)
    >>> chosen = {0.0: np.array([0, 1]), 1.0: np.array([1, 1])}
    >>> metrics = evaluate_pointing(right, real, chosen, np.array([True, False]), np.zeros(2, int))
    >>> [share.words for share in metrics.accuracy.values()], metrics.chance.words, metrics.best_affinity()
    ([50.0, 100.0], 75.0, 1.0)
    """
    check_bootstrap(bootstrap)
    if not chosen:
        raise invalid_argument("chosen", {}, "the regions chosen at one affinity or more")
    if not len(right) or not nouns.any():
        raise DataError("There are no words that name an object, so pointing cannot be measured.")
    right = right & real

    def share(values: np.ndarray) -> PointingShare:
        parts = {"words": np.ones(len(right), bool), "nouns": nouns}
        means = {name: 100 * float(values[part].mean()) for name, part in parts.items()}
        intervals = None
        if bootstrap:
            intervals = {name: _interval(values[part], images[part], bootstrap, seed) for name, part in parts.items()}
        return PointingShare(means["words"], means["nouns"], intervals)

    regions = real.sum(axis=1)
    return PointingMetrics(
        accuracy={affinity: share(_hits(right, region)) for affinity, region in chosen.items()},
        chance=share(right.sum(axis=1) / np.maximum(regions, 1)),
        whole_image=share(right[:, 0]),
        ceiling=share(np.asarray(right.any(axis=1))),
        images=len(np.unique(images)),
        words=len(right),
        nouns=int(nouns.sum()),
        undecided=int((next(iter(chosen.values())) < 0).sum()),
        regions=float(regions.mean()),
    )


def check_bootstrap(bootstrap: int) -> None:
    """Refuses what is no number of resamplings.

    Args:
        bootstrap: see `evaluate_pointing`.

    Raises:
        InvalidArgumentError: if it is negative.

    Example:

    >>> check_bootstrap(0)
    """
    if bootstrap < 0:
        raise invalid_argument("bootstrap", bootstrap, "an integer >= 0")


def _interval(values: np.ndarray, images: np.ndarray, resamplings: int, seed: int) -> list[float]:
    """Resamples whole images, since words of one image are right or wrong together."""
    numbers, rows = np.unique(images, return_inverse=True)
    sums, counts = np.bincount(rows, weights=values), np.bincount(rows)
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamplings):
        draw = generator.integers(len(numbers), size=len(numbers))
        drawn.append(100 * float(sums[draw].sum() / counts[draw].sum()))
    return [float(value) for value in np.percentile(drawn, [2.5, 97.5])]


class ScoreSpread:
    """The standard deviation of the scores of a word's regions over all words, some captions at a time.

    Each word's scores are taken from their own mean: what counts is how much better a word's best region is
    than its others, which an affinity (beta of Karpathy and Fei-Fei 2015, equation 12) has to outweigh.

    Example: the means are 2 and 5, so that four scores are 1 away from theirs.

    >>> spread = ScoreSpread()
    >>> spread.add(np.array([[[1.0, 3.0], [4.0, 6.0]]]), np.ones((1, 2), bool), np.ones((1, 2), bool))
    >>> spread.value
    1.0
    """

    def __init__(self) -> None:
        self._squares, self._count = 0.0, 0

    def add(self, scores: np.ndarray, words: np.ndarray, regions: np.ndarray) -> None:
        """Counts some captions in.

        Args:
            scores: (captions, steps, regions) float; those of padding may be anything.
            words: (captions, steps) bool, whether there is a word.
            regions: (captions, regions) bool, whether there is a region.
        """
        real = words[:, :, None] & regions[:, None]
        known = np.where(real, scores, 0).astype(np.float64)
        means = known.sum(axis=2, keepdims=True) / np.maximum(real.sum(axis=2, keepdims=True), 1)
        # A broken score shows in the value.
        with np.errstate(invalid="ignore"):
            self._squares += float(np.where(real, (known - means) ** 2, 0).sum())
        self._count += int(real.sum())

    @property
    def value(self) -> float:
        """The standard deviation; 0 where nothing was counted, and NaN or infinity where a score is."""
        return math.sqrt(self._squares / max(self._count, 1))
