"""Metrics of hypernymy: classification of true and corrupted pairs, and ranks of direct hypernyms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from keras import ops

from pipelines.hypernymy.model import HypernymModel
from pipelines.hypernymy.wordnet import PairSet, transitive_closure
from vsemb.console import progress
from vsemb.errors import DataError
from vsemb.evaluation.binary import accuracy, average_precision, find_threshold, roc_auc

_PAIRS = 1 << 16  # pairs per block of energies
_QUERIES = 256  # concepts per block of ranks: 84 MB of energies for WordNet's 82,115 candidates


@dataclass(frozen=True)
class PairMetrics:
    """Classification metrics of true and corrupted pairs.

    Attributes:
        accuracy: share of test pairs classified correctly, in [0, 1].
        average_precision: average precision of the test pairs, in [0, 1].
        roc_auc: area under the ROC curve of the test pairs, in [0, 1].
        threshold: maximum energy of a pair classified as true, fitted on the development pairs.
        dev_accuracy: accuracy of the development pairs at this threshold, in [0, 1].
    """

    accuracy: float
    average_precision: float
    roc_auc: float
    threshold: float
    dev_accuracy: float

    def to_json(self) -> dict[str, float | None]:
        """Return plain values; a threshold of -inf becomes None."""
        return {name: value if np.isfinite(value) else None for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Reconstruction:
    """Ranks of direct hypernyms among all concepts.

    Attributes:
        mean_rank: mean over direct edges, from 1.
        mean_average_precision: mean over concepts with a hypernym, in [0, 1].
        edges: number of direct edges.
    """

    mean_rank: float
    mean_average_precision: float
    edges: int

    def to_json(self) -> dict[str, float]:
        """Return plain values."""
        return asdict(self)


def pair_energies(model: HypernymModel, pairs: np.ndarray) -> np.ndarray:
    """Compute the energies of pairs in blocks.

    Args:
        model: the model.
        pairs: (pairs, 2) int, numbers of the specific and the general concept.

    Returns:
        (pairs,) float32; lower means that the second concept is more likely a hypernym.
    """
    blocks = [ops.convert_to_numpy(model(pairs[start : start + _PAIRS])) for start in range(0, len(pairs), _PAIRS)]
    return np.concatenate(blocks) if blocks else np.empty(0, np.float32)


def closure_errors(known: np.ndarray, pairs: np.ndarray, concepts: int) -> np.ndarray:
    """Compute the transitive-closure baseline: 0 for pairs that follow from known pairs, 1 for others.

    In Vendrov et al. 2016, section 3.4, the known pairs are the training and development pairs.

    Args:
        known: (known, 2) int true pairs.
        pairs: (pairs, 2) int pairs to judge.
        concepts: number of concepts.

    Returns:
        (pairs,) float32 errors.

    Example:

    >>> closure_errors(np.array([[0, 1], [1, 2]]), np.array([[0, 2], [2, 0]]), 3).tolist()
    [0.0, 1.0]
    """
    inferred = PairSet(transitive_closure(np.unique(known, axis=0)), concepts)
    return 1.0 - inferred.contains(pairs).astype(np.float32)


def membership_energies(pairs: np.ndarray, concepts: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function for `reconstruct`: energy 0 for pairs of a set, 1 for others.

    Args:
        pairs: (pairs, 2) int (specific, general).
        concepts: the number of concepts.

    Example:

    >>> membership_energies(np.array([[0, 1]]), concepts=3)(np.array([0, 2])).tolist()
    [[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]
    """
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]

    def energies(queries: np.ndarray) -> np.ndarray:
        result = np.ones((len(queries), concepts), np.float32)
        members = _rows_of(queries, pairs)
        result[np.searchsorted(queries, members[:, 0]), members[:, 1]] = 0.0
        return result

    return energies


def evaluate_pairs(
    dev_errors: np.ndarray, dev_labels: np.ndarray, test_errors: np.ndarray, test_labels: np.ndarray
) -> PairMetrics:
    """Fit the threshold on development pairs and measure test pairs (Vendrov et al. 2016, section 3.3).

    Args:
        dev_errors: (dev,) float, small for true pairs.
        dev_labels: (dev,) 1 or 0.
        test_errors: (test,) float.
        test_labels: (test,) 1 or 0.

    Raises:
        DataError: see `vsemb.evaluation.binary`.
    """
    threshold = find_threshold(dev_errors, dev_labels)
    return PairMetrics(
        accuracy(test_errors, test_labels, threshold),
        average_precision(test_errors, test_labels),
        roc_auc(test_errors, test_labels),
        threshold,
        accuracy(dev_errors, dev_labels, threshold),
    )


def reconstruct(
    energies_to_all: Callable[[np.ndarray], np.ndarray],
    edges: np.ndarray,
    closure: np.ndarray,
    *,
    block: int = _QUERIES,
    name: str = "ranking",
) -> Reconstruction:
    """Rank every concept's direct hypernyms among all concepts (Nickel & Kiela 2017, section 4.1).

    The candidates of an edge (u, v) are v and all concepts except u and u's other ancestors, since an order may place u
    closer to another ancestor than to v. A candidate that ties with v counts as ranked before it. The average
    precision of a concept is computed among the same candidates. Memory grows with block x concepts.

    Args:
        energies_to_all: function from (n,) sorted int concept numbers to (n, concepts) float energies, small for a
            hypernym, e.g. `HypernymModel.energies_to_all`.
        edges: (edges, 2) int direct (hyponym, hypernym) pairs, distinct.
        closure: (pairs, 2) int, every (concept, ancestor).
        block: hyponyms per block; default 256.
        name: label of the progress bar.

    Raises:
        DataError: if `edges` is empty, or an energy is NaN.
    """
    if not len(edges):
        raise DataError("`edges` must have at least one direct edge; got 0.")
    edges, closure = (pairs[np.argsort(pairs[:, 0], kind="stable")] for pairs in (edges, closure))
    hyponyms = np.unique(edges[:, 0])
    ranks, precisions = [], []
    for start in progress(range(0, len(hyponyms), block), desc=name, unit="block", leave=False):
        queries = hyponyms[start : start + block]
        energies = np.asarray(energies_to_all(queries))  # (queries, concepts)
        if np.isnan(energies).any():
            raise DataError("Energies must be finite; got NaN. Train the model again with a smaller learning rate.")
        direct, ancestors = _rows_of(queries, edges), _rows_of(queries, closure)
        left_out = np.concatenate([ancestors, np.stack([queries, queries], axis=1)])
        row = np.searchsorted(queries, direct[:, 0])
        own = energies[row, direct[:, 1]]
        before = _count_before(energies, row, own, np.searchsorted(queries, left_out[:, 0]), left_out[:, 1])
        ranks.append(before + 1)
        precisions.append(_average_precisions(row, own, before))
    return Reconstruction(float(np.mean(np.concatenate(ranks))), float(np.mean(np.concatenate(precisions))), len(edges))


def _rows_of(queries: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the pairs whose first concept is a query; pairs and queries are sorted."""
    low, high = np.searchsorted(pairs[:, 0], [queries[0], queries[-1] + 1])
    between = pairs[low:high]
    return between[np.isin(between[:, 0], queries)]


def _count_before(
    energies: np.ndarray, row: np.ndarray, own: np.ndarray, other_row: np.ndarray, other: np.ndarray
) -> np.ndarray:
    """Count the candidates ranked before each edge.

    Args:
        energies: (queries, concepts).
        row: (edges,) row of each edge, sorted.
        own: (edges,) energy of each edge.
        other_row: (others,) row of each excluded concept, including the edges' own.
        other: (others,) excluded concepts.

    Returns:
        (edges,) int64, number of energies in the row that are at most the edge's own, without excluded concepts.
    """
    before = np.empty(len(own), np.int64)
    of_others = energies[other_row, other]
    place = np.arange(len(row)) - np.searchsorted(row, row)  # 0 for the first edge of a row, 1, ...
    for number in range(int(place.max()) + 1):
        now = np.flatnonzero(place == number)
        candidates = energies if len(now) == len(energies) else energies[row[now]]
        up_to = np.full(len(energies), -np.inf)
        up_to[row[now]] = own[now]
        too_many = np.bincount(other_row[of_others <= up_to[other_row]], minlength=len(energies))
        before[now] = np.count_nonzero(candidates <= own[now, None], axis=1) - too_many[row[now]]
    return before


def _average_precisions(row: np.ndarray, own: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the average precision of each row's edges, with ties as one step: (rows,) float64."""
    same = row[:, None] == row[None]
    correct = np.count_nonzero(same & (own[None] <= own[:, None]), axis=1)
    precision = correct / (correct + before)
    return np.bincount(row, weights=precision) / np.bincount(row)
