"""The losses as double loops over plain numbers, in float64: slow, and easy to check by eye."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def ranking_rows(relation: np.ndarray, scores: np.ndarray, margin: float, weight: float) -> np.ndarray:
    """`weight` x hardest + (1 - weight) x sum of the hinges of each row."""
    values = []
    for row, related in zip(scores, relation, strict=True):
        own = row[list(related).index(1)]
        hinges = [max(0.0, margin - own + s) for s, r in zip(row, related, strict=True) if r == 0]
        values.append(weight * max(hinges, default=0.0) + (1 - weight) * sum(hinges))
    return np.array(values)


def infonce_rows(relation: np.ndarray, scores: np.ndarray, temperature: float, smoothing: float) -> np.ndarray:
    """Cross entropy of a softmax over the candidates that count."""
    values = []
    for row, related in zip(scores, relation, strict=True):
        logits = [s / temperature for s, r in zip(row, related, strict=True) if r >= 0]
        kinds = [r for r in related if r >= 0]
        total = math.log(sum(math.exp(x) for x in logits))
        negatives = kinds.count(0)
        share = smoothing if negatives else 0.0
        value = 0.0
        for logit, kind in zip(logits, kinds, strict=True):
            target = 1 - share if kind == 1 else share / negatives
            value -= target * (logit - total)
        values.append(value)
    return np.array(values)


def sigmoid_rows(relation: np.ndarray, scores: np.ndarray, temperature: float, bias: float) -> np.ndarray:
    """-log of the probability of every right answer, yes for the own pair and no for a negative."""
    values = []
    for row, related in zip(scores, relation, strict=True):
        value = 0.0
        for score, kind in zip(row, related, strict=True):
            yes = 1 / (1 + math.exp(-(score / temperature + bias)))
            value -= {1: math.log(yes), 0: math.log(1 - yes), -1: 0.0}[int(kind)]
        values.append(value)
    return np.array(values)


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


def random_relation(queries: int, candidates: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A relation with exactly one own pair a row, some rows to ignore, and scores without ties."""
    generator = np.random.default_rng(seed)
    relation = -(generator.random((queries, candidates)) < 0.25).astype(np.int32)
    relation[np.arange(queries), generator.permutation(candidates)[:queries]] = 1
    scores = generator.permutation(queries * candidates).reshape(queries, candidates)
    return relation, scores / scores.size - 0.4
