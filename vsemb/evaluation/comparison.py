"""Paired bootstrap over images: whether one model retrieves better than another on the same images."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vsemb.errors import DataError
from vsemb.evaluation.retrieval import RECALLS
from vsemb.parts import Count, Seed, require


@dataclass(frozen=True)
class PairedDifference:
    """A metric of two models on the same images, in percent.

    Attributes:
        first: value of the first model.
        second: value of the second model.
        difference: `second - first`.
        interval_95: 95 % bootstrap interval of the difference.
        not_better: share of bootstrap samples in which the difference is <= 0, from 0 to 1.
    """

    first: float
    second: float
    difference: float
    interval_95: tuple[float, float]
    not_better: float

    def to_json(self) -> dict[str, Any]:
        """Return the values as `vsemb compare --json` writes them."""
        return asdict(self)


def compare_ranks(
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    text_rows: np.ndarray,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, PairedDifference]:
    """Compare two models by a paired bootstrap over images.

    A bootstrap sample draws images with replacement, each with all its captions and for both models. Captions of one
    image are not independent of each other, so they are not drawn one by one.

    Args:
        first: (n,) and (m,) int64, ranks from 0 of image queries and of text queries, from `retrieval_ranks`.
        second: the ranks of the other model for the same queries.
        text_rows: (m,) int64, row of each text's image.
        bootstrap: number of bootstrap samples.
        seed: seed of the samples.

    Returns:
        `image_to_text R@1`, `image_to_text R@5` and so on, and `recall_sum` -> comparison.

    Raises:
        InvalidArgumentError: if bootstrap < 1.
        DataError: if the numbers of queries of the two models, or the number of `text_rows`, do not match.

    Example: the second model finds the second of two images first.

    >>> first, second = np.array([0, 9]), np.array([0, 0])
    >>> compare_ranks((first, first), (second, second), np.arange(2))["recall_sum"].difference
    200.0

    Reference: Efron and Tibshirani 1993, chapters 6 and 16; Koehn 2004, "Statistical significance tests for machine
    translation evaluation".
    """
    require("bootstrap", bootstrap, Count)
    require("seed", seed, Seed)
    images, texts = map(len, first)
    if (len(second[0]), len(second[1]), len(text_rows)) != (images, texts, texts):
        raise DataError(
            f"Both models must rank the same queries; got {images} and {len(second[0])} images, {texts} and "
            f"{len(second[1])} texts, and the images of {len(text_rows)} texts."
        )
    rows = np.arange(images), np.asarray(text_rows)
    # Number of queries per image, (images, 1), and number of them with a rank below K per model, (2, images, 3).
    queries, right = [], []
    for side, row in enumerate(rows):
        queries.append(np.bincount(row, minlength=images)[:, None])
        ranked = [[np.bincount(row, model[side] < k, images) for k in RECALLS] for model in (first, second)]
        right.append(np.array(ranked).mT)

    def measured(drawn: np.ndarray) -> np.ndarray:
        """Return each model's recalls and their sum, (2, 7); `drawn` has the number of times that each image counts."""
        sides = [100 * (drawn @ r) / (drawn @ q) for r, q in zip(right, queries, strict=True)]
        recalls = np.concatenate(sides, axis=1)
        return np.append(recalls, recalls.sum(axis=1, keepdims=True), axis=1)

    generator = np.random.default_rng(seed)
    draws = (np.bincount(generator.integers(images, size=images), minlength=images) for _ in range(bootstrap))
    # (samples, 7), rounded so that rounding errors of sums do not count as gains.
    gains = np.round([second - first for first, second in map(measured, draws)], 9)
    bounds = np.percentile(gains, [2.5, 97.5], axis=0).T
    of_first, of_second = measured(np.ones(images))
    names = [f"{side} R@{k}" for side in ("image_to_text", "text_to_image") for k in RECALLS]
    differences = {}
    for number, name in enumerate([*names, "recall_sum"]):
        one, other = float(of_first[number]), float(of_second[number])
        low, high = bounds[number].tolist()
        not_better = float(np.mean(gains[:, number] <= 0))
        differences[name] = PairedDifference(one, other, other - one, (low, high), not_better)
    return differences
