"""The losses as double loops over plain numbers, in float64: slow, and easy to check by eye."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np


def candidates(labels: np.ndarray, mask: np.ndarray, scores: np.ndarray) -> Iterator[tuple[float, list[float]]]:
    """Yields each query's own score and those of its negatives."""
    for row, label, counts in zip(scores, labels, mask, strict=True):
        own = [s for s, is_own in zip(row, label, strict=True) if is_own]
        yield own[0], [s for s, is_own, fair in zip(row, label, counts, strict=True) if fair and not is_own]


def ranking_rows(labels: np.ndarray, mask: np.ndarray, scores: np.ndarray, margin: float, weight: float) -> np.ndarray:
    """`weight` x hardest + (1 - weight) x sum of the hinges of each row."""
    values = []
    for own, negatives in candidates(labels, mask, scores):
        hinges = [max(0.0, margin - own + s) for s in negatives]
        values.append(weight * max(hinges, default=0.0) + (1 - weight) * sum(hinges))
    return np.array(values)


def infonce_rows(
    labels: np.ndarray, mask: np.ndarray, scores: np.ndarray, temperature: float, smoothing: float
) -> np.ndarray:
    """Cross entropy of a softmax over the candidates that count."""
    values = []
    for own, negatives in candidates(labels, mask, scores):
        total = math.log(sum(math.exp(s / temperature) for s in [own, *negatives]))
        share = smoothing if negatives else 0.0
        value = -(1 - share) * (own / temperature - total)
        for score in negatives:
            value -= share / len(negatives) * (score / temperature - total)
        values.append(value)
    return np.array(values)


def sigmoid_rows(
    labels: np.ndarray, mask: np.ndarray, scores: np.ndarray, temperature: float, bias: float
) -> np.ndarray:
    """-log of the probability of every right answer, yes for the own pair and no for a negative."""

    def yes(score: float) -> float:
        return 1 / (1 + math.exp(-(score / temperature + bias)))

    return np.array(
        [
            -math.log(yes(own)) - sum(math.log(1 - yes(score)) for score in negatives)
            for own, negatives in candidates(labels, mask, scores)
        ]
    )


def structured_rows(
    scores: np.ndarray, query_classes: np.ndarray, classes: np.ndarray, own: np.ndarray, negatives: str
) -> np.ndarray:
    """Equation 6 as it stands: for each query a loop over the classes, each with its mean score."""
    values = []
    for row, label, place in zip(scores, query_classes, own, strict=True):
        worst = {
            y: float(y != label) + np.mean([s - row[place] for s, c in zip(row, classes, strict=True) if c == y])
            for y in set(classes)
        }
        if negatives == "hardest":
            values.append(max(0.0, *worst.values()))
        else:
            values.append(sum(max(0.0, v) for y, v in worst.items() if y != label) / len(worst))
    return np.array(values)


def finite_differences(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of a scalar function, one entry at a time."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        ahead, behind = at.copy(), at.copy()
        ahead[index] += step
        behind[index] -= step
        gradient[index] = (function(ahead) - function(behind)) / (2 * step)
    return gradient


def random_labels(queries: int, candidates: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels with one own pair a row, a mask of some candidates to ignore, and scores without ties, float64."""
    generator = np.random.default_rng(seed)
    mask = generator.random((queries, candidates)) >= 0.25
    labels = np.zeros((queries, candidates), np.int32)
    labels[np.arange(queries), generator.permutation(candidates)[:queries]] = 1
    scores = generator.permutation(queries * candidates).reshape(queries, candidates)
    return labels, mask | (labels == 1), scores / scores.size - 0.4
