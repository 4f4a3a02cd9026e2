"""Normal distributions and the loss of PCME++ as loops over plain numbers, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def rows(n: int, dim: int, seed: int, log_variance: float = -1.0) -> np.ndarray:
    """Rows of normal distributions, (n, 2 dim) float32: means of length 1, then log variances around a number."""
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(n, dim))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return np.concatenate([means, generator.normal(log_variance, 0.5, (n, dim))], axis=1).astype(np.float32)


def slow_distance(u: Sequence[float], v: Sequence[float]) -> float:
    """Squared distance of the means, and all variances."""
    dim, total = len(u) // 2, 0.0
    for place in range(dim):
        total += (float(u[place]) - float(v[place])) ** 2
        total += math.exp(u[dim + place]) + math.exp(v[dim + place])
    return total


def slow_divergence(u: Sequence[float]) -> float:
    """Mean over dimensions of KL(N(mean, variance), N(0, 1)) = (mean² + variance - 1 - log variance) / 2."""
    dim = len(u) // 2
    pairs = [(float(u[place]), float(u[dim + place])) for place in range(dim)]
    return sum((mean**2 + math.exp(log) - 1 - log) / 2 for mean, log in pairs) / dim


def matching_rows(labels: np.ndarray, mask: np.ndarray, logits: np.ndarray, *, pseudo: bool = False) -> np.ndarray:
    """Binary cross entropy of each query, the sum over the candidates that count."""
    values = []
    for row, label, counts in zip(logits, labels, mask, strict=True):
        own = next(logit for logit, is_own in zip(row, label, strict=True) if is_own)
        costs = []
        for logit, is_own, fair in zip(row, label, counts, strict=True):
            if fair:
                positive = is_own or (pseudo and logit >= own)
                probability = 1 / (1 + math.exp(-logit))
                costs.append(-math.log(probability if positive else 1 - probability))
        values.append(sum(costs))
    return np.array(values)
