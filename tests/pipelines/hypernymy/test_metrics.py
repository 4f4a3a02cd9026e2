"""Hypernymy metrics: the closure baseline, thresholds from dev, ranks of direct edges by a slow count."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.hypernymy.metrics import (
    closure_errors,
    evaluate_pairs,
    membership_energies,
    pair_energies,
    reconstruct,
)
from pipelines.hypernymy.model import HypernymModel
from pipelines.hypernymy.wordnet import transitive_closure
from vsemb.errors import DataError


def slow_reconstruction(energies: np.ndarray, edges: np.ndarray, closure: np.ndarray) -> tuple[float, float]:
    ancestors = {tuple(pair) for pair in closure.tolist()}
    ranks, precisions = [], []
    for u in sorted({int(low) for low, _ in edges}):
        wrong = [energies[u, w] for w in range(len(energies)) if w != u and (u, w) not in ancestors]
        own = [energies[u, v] for low, v in edges if low == u]
        before = [sum(w <= e for w in wrong) for e in own]
        ranks += [1 + b for b in before]
        correct = [sum(o <= e for o in own) for e in own]
        precisions.append(np.mean([f / (f + b) for f, b in zip(correct, before, strict=True)]))
    return float(np.mean(ranks)), float(np.mean(precisions))


def test_reconstruction_by_hand():
    # 0 is a kind of 1 and of 2, both of 3; 4 is nothing to them.
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    energies = np.full((5, 5), 9.0)
    # Of 0 there is one wrong candidate, 4: behind 1 and before 2. Rank 1 and 2. That 3, a true ancestor, and
    # 0 itself come first is no mistake. AP: 1 found first of 1, 2 found among 3: (1 + 2/3) / 2 = 5/6.
    energies[0] = [0.0, 0.2, 0.4, 0.1, 0.3]
    # Of 1 the wrong ones are 0, 2, 4; a tie counts against 3: rank 3, AP 1/3.
    energies[1] = [0.5, 0.0, 0.4, 0.5, 0.6]
    # Of 2 all are behind: rank 1, AP 1.
    energies[2, 3] = 0.1
    result = reconstruct(lambda queries: energies[queries], edges, transitive_closure(edges))
    assert result.mean_rank == pytest.approx((1 + 2 + 3 + 1) / 4)
    assert result.mean_average_precision == pytest.approx((5 / 6 + 1 / 3 + 1) / 3)
    assert result.edges == 4
    assert result.to_json() == {
        "mean_rank": result.mean_rank,
        "mean_average_precision": result.mean_average_precision,
        "edges": 4,
    }


@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize("values", [3, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_reconstruction_against_a_slow_count(seed, values, block):
    generator = np.random.default_rng(seed)
    edges = np.array([(low, generator.integers(low)) for low in range(1, 20) for _ in range(3) if low != 7])
    edges = np.unique(generator.permutation(20)[edges], axis=0)
    closure = transitive_closure(edges)
    # Few values tie often.
    energies = generator.integers(values, size=(20, 20)).astype(np.float32)
    kept = energies.copy()
    result = reconstruct(
        lambda queries: energies[queries],
        generator.permutation(edges),
        generator.permutation(closure),
        block=block,
    )
    assert (result.mean_rank, result.mean_average_precision) == pytest.approx(
        slow_reconstruction(energies, edges, closure)
    )
    np.testing.assert_array_equal(energies, kept)


def test_reconstruction_of_what_is_known_and_of_nothing():
    edges = np.array([[1, 0], [2, 0], [3, 1]])
    closure = transitive_closure(edges)
    all_known = reconstruct(membership_energies(closure, 4), edges, closure)
    assert (all_known.mean_rank, all_known.mean_average_precision) == (1, 1)
    # Without an idea all candidates tie: for 1 they are 0, 2, 3, so rank 3; 2 likewise; for 3 they are 1 and
    # 2, so rank 2. AP 1/3, 1/3 and 1/2.
    nothing = reconstruct(membership_energies(edges[:0], 4), edges, closure)
    assert nothing.mean_rank == pytest.approx((3 + 3 + 2) / 3)
    assert nothing.mean_average_precision == pytest.approx((1 / 3 + 1 / 3 + 1 / 2) / 3)


def test_reconstruction_refuses():
    edges = np.array([[1, 0]])
    with pytest.raises(DataError, match="`edges`"):
        reconstruct(membership_energies(edges, 2), edges[:0], edges)
    with pytest.raises(DataError, match="NaN"):
        reconstruct(lambda queries: np.full((len(queries), 2), np.nan), edges, edges)


def test_model_reconstructs_what_it_holds():
    # 2 below 1 below 0, and 3 below 0 on its own: a coordinate a concept, those of its ancestors and its own.
    model = HypernymModel(4, 4)
    model.set_weights([np.array([[0, 0, 0, 0], [0, -1, 0, 0], [0, 1, -1, 0], [0, 0, 0, 1.0]])])
    edges = np.array([[1, 0], [2, 1], [3, 0]])
    closure = transitive_closure(edges)
    result = reconstruct(lambda q: model.energies_to_all(q).numpy(), edges, closure)
    assert (result.mean_rank, result.mean_average_precision) == (1, 1)


def test_closure_errors():
    known = np.array([[0, 1], [1, 2], [0, 1], [3, 2]])
    pairs = np.array([[0, 1], [0, 2], [2, 0], [3, 1], [3, 2]])
    assert closure_errors(known, pairs, 4).tolist() == [0, 0, 1, 1, 0]


def test_threshold_is_fitted_on_dev():
    # On dev 0.3 is best, at 3 of 4; on test, 0.6 would be.
    dev = np.array([0.1, 0.3, 0.9, 0.5]), np.array([1, 1, 1, 0])
    test = np.array([0.2, 0.6, 0.8, 0.9]), np.array([1, 1, 0, 0])
    metrics = evaluate_pairs(*dev, *test)
    assert metrics.threshold == 0.3
    assert (metrics.dev_accuracy, metrics.accuracy) == (0.75, 0.75)
    assert (metrics.average_precision, metrics.roc_auc) == (1, 1)
    assert metrics.to_json()["threshold"] == 0.3
    nothing = evaluate_pairs(np.array([0.1, 0.2]), np.array([0, 0]), *test)
    assert nothing.to_json()["threshold"] is None


def test_energies_in_blocks(monkeypatch):
    model = HypernymModel(5, 3, scale=1.0, seed=0)
    pairs = np.random.default_rng(0).integers(5, size=(10, 2))
    whole = pair_energies(model, pairs)
    monkeypatch.setattr("pipelines.hypernymy.metrics._PAIRS", 3)
    np.testing.assert_allclose(pair_energies(model, pairs), whole, rtol=1e-6)
    assert pair_energies(model, pairs[:0]).shape == (0,)
