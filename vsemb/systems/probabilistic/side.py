"""Uncertainty of the queries of one side, and how it goes with their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Side:
    """The images or the texts of a split as queries.

    Attributes:
        uncertainty: (n,) float, the total variance of each query.
        ranks: (n,) int64, rank of the best positive of each query, from 0.

    Example: the uncertain half of the queries finds nothing.

    >>> side = Side(np.array([0.3, 0.1, 0.2, 0.4]), np.array([7, 0, 0, 9]))
    >>> [each["R@1"] for each in side.bins(2)], side.order.tolist(), round(side.correlation, 2)
    ([100.0, 0.0], [1, 2, 0, 3], 0.95)
    """

    uncertainty: np.ndarray
    ranks: np.ndarray

    @cached_property
    def order(self) -> np.ndarray:
        """Rows of the queries, the least uncertain first."""
        return np.argsort(self.uncertainty, kind="stable")

    @property
    def correlation(self) -> float:
        """Rank correlation of uncertainty with the rank of the positive; above 0 if uncertain queries find less."""
        return rank_correlation(self.uncertainty, self.ranks)

    def bins(self, count: int) -> list[dict[str, Any]]:
        """Divide the queries by uncertainty into bins of about equal size, the least uncertain first.

        Args:
            count: number of bins, at most the number of queries.

        Returns:
            Number of queries, mean uncertainty, and recalls at 1 and 10 in percent of each bin.
        """
        return [
            {
                "queries": len(rows),
                "uncertainty": float(self.uncertainty[rows].mean()),
                "R@1": 100 * float(np.mean(self.ranks[rows] < 1)),
                "R@10": 100 * float(np.mean(self.ranks[rows] < 10)),
            }
            for rows in np.array_split(self.order, count)
        ]

    def summary(self) -> dict[str, float]:
        """Return number, mean, deviation and quantiles of the uncertainties."""
        values = self.uncertainty
        moments = {"count": len(values), "mean": float(values.mean()), "deviation": float(values.std())}
        return moments | {f"p{share}": float(np.percentile(values, share)) for share in (5, 50, 95)}


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Spearman's rank correlation, in which equal values have their mean rank.

    Args:
        first: (n,) numbers.
        second: (n,) numbers.

    Returns:
        A number in [-1, 1]; 0 if all values of one side are equal.

    Example: of three pairs, the last two are in another order.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10, 30, 20])), rank_correlation(np.ones(2), np.arange(2))
    (0.5, 0.0)
    """
    one, other = _mean_ranks(first), _mean_ranks(second)
    spread = one.std() * other.std()
    return float(np.mean((one - one.mean()) * (other - other.mean())) / spread) if spread else 0.0


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[places]
