"""Hypernymy's epoch loop against slow steps of the same arithmetic, and what is kept of a training."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from pipelines.hypernymy.metrics import pair_energies
from pipelines.hypernymy.model import COMPARISONS, HypernymModel
from pipelines.hypernymy.training import EpochLoop, train_hypernymy
from pipelines.hypernymy.wordnet import PairSet, labelled_pairs, transitive_closure
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.evaluation.binary import accuracy, find_threshold
from vsemb.losses.max_margin import MaxMargin

CONCEPTS, DIM, BATCH, MARGIN = 9, 3, 4, 0.7
# Ten pairs: batches of 4, 4 and 2. Concepts come up in several places of a batch, and 8 in none.
TRUE = np.random.default_rng(1).integers(8, size=(10, 2)).astype(np.int32)
FALSE = np.random.default_rng(2).integers(8, size=(10, 2)).astype(np.int32)
RATES = np.array([0.05, 0.04, 0.03])
PARTS = [slice(0, 4), slice(4, 8), slice(8, 10)]


def model(comparison: str = "order") -> HypernymModel:
    return HypernymModel(CONCEPTS, DIM, comparison, scale=1.0, seed=5)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_dense_steps_are_those_of_fit(comparison):
    slow, fast = model(comparison), model(comparison)
    slow.compile(keras.optimizers.Adam(0.0), loss=MaxMargin(MARGIN))
    loop = EpochLoop(fast, adam="dense", margin=MARGIN)
    for _ in range(2):
        losses = []
        for part, rate in zip(PARTS, RATES, strict=True):
            slow.optimizer.learning_rate.assign(rate)
            pairs = np.concatenate([TRUE[part], FALSE[part]])
            labels = np.repeat([1, 0], len(pairs) // 2)
            losses.append(float(slow.train_on_batch(pairs, labels)))
            slow.reset_metrics()
        loss = loop.run(TRUE, FALSE, BATCH, RATES)
        np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)
    # Six steps of at most 0.05, in float32.
    for fast_weight, slow_weight in zip(fast.get_weights(), slow.get_weights(), strict=True):
        np.testing.assert_allclose(fast_weight, slow_weight, rtol=1e-4, atol=1e-5)


def slow_lazy_adam(vectors: np.ndarray, rates: np.ndarray, epochs: int) -> np.ndarray:
    """Adam that leaves rows without a pair in the batch as they are; order violations, in float64."""
    vectors = vectors.astype(np.float64)
    mean, square = np.zeros_like(vectors), np.zeros_like(vectors)
    for step, (part, rate) in enumerate(list(zip(PARTS, rates, strict=True)) * epochs, start=1):
        gradient = np.zeros_like(vectors)
        for pairs, true in ((TRUE[part], True), (FALSE[part], False)):
            for low, high in pairs:
                over = np.maximum(0, abs(vectors[high]) - abs(vectors[low]))
                weight = 1 if true else -1 if over @ over < MARGIN else 0
                gradient[high] += weight * 2 * over * np.sign(vectors[high])
                gradient[low] -= weight * 2 * over * np.sign(vectors[low])
        rows = np.unique(np.concatenate([TRUE[part], FALSE[part]]))
        mean[rows] = 0.9 * mean[rows] + 0.1 * gradient[rows]
        square[rows] = 0.999 * square[rows] + 0.001 * gradient[rows] ** 2
        corrected = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        vectors[rows] -= corrected * mean[rows] / (np.sqrt(square[rows]) + 1e-7)
    return vectors


def test_lazy_steps_against_numpy():
    trained = model()
    expected = slow_lazy_adam(trained.get_weights()[0], RATES, epochs=2)
    before = trained.get_weights()[0]
    loop = EpochLoop(trained, adam="lazy", margin=MARGIN)
    for _ in range(2):
        loop.run(TRUE, FALSE, BATCH, RATES)
    after = trained.get_weights()[0]
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(after[8], before[8])
    assert np.abs(after - before)[:8].max() > 0.05


def test_lazy_and_dense_differ():
    """A concept of the first batch alone goes on by its momentum in the second, if Adam is dense."""
    true, false = np.array([[0, 1], [2, 3]], np.int32), np.array([[1, 0], [3, 2]], np.int32)
    moved = {}
    for adam in ("lazy", "dense"):
        trained = model()
        loop = EpochLoop(trained, adam=adam)
        loop.run(true[:1], false[:1], 1, np.array([0.1]))
        first = trained.get_weights()[0]
        loop.run(true[1:], false[1:], 1, np.array([0.1]))
        moved[adam] = np.abs(trained.get_weights()[0] - first)[:2].max()
    assert moved["lazy"] == 0
    assert moved["dense"] > 0.01


@pytest.fixture(scope="module")
def tree():
    """(closure, dev pairs, dev labels, known) of a binary tree of 63 concepts, 0 at the top."""
    closure = transitive_closure(np.array([(low, (low - 1) // 2) for low in range(1, 63)]))
    known = PairSet(closure, 63)
    return closure, *labelled_pairs(closure, 63, 0, known), known


def trained_on(tree, seed: int = 0, **options):
    closure, pairs, labels, known = tree
    trained = HypernymModel(63, 8, scale=0.5, seed=1)
    options = {"epochs": 12, "batch": 50, "learning_rate": 0.05, **options}
    history = train_hypernymy(trained, closure, pairs, labels, known=known, seed=seed, **options)
    return trained, history


def dev_accuracy(trained: HypernymModel, tree) -> float:
    energies = pair_energies(trained, tree[1])
    return accuracy(energies, tree[2], find_threshold(energies, tree[2]))


@pytest.mark.parametrize("adam", ["lazy", "dense"])
def test_a_tree_is_learned(tree, adam):
    trained, history = trained_on(tree, adam=adam, epochs=40)
    assert history.dev_accuracy[history.best_epoch] > 0.97
    assert history.loss[-1] < history.loss[0] / 4
    assert len(history.seconds) == len(history.loss) == 40


SCRIPT = [0.5, 0.8, 0.7, 0.8, 0.6, 0.9]


def scripted(monkeypatch) -> None:
    """Has the epochs' dev accuracies come out as SCRIPT says."""
    scores = iter(SCRIPT)
    monkeypatch.setattr("pipelines.hypernymy.training.accuracy", lambda *_: next(scores))


def test_the_best_weights_are_kept(tree, monkeypatch):
    after_two = trained_on(tree, epochs=2)[0].get_weights()[0]
    scripted(monkeypatch)
    trained, history = trained_on(tree, epochs=5)
    # The first of the two best, two epochs in.
    assert history.best_epoch == 1
    assert history.dev_accuracy == SCRIPT[:5]
    np.testing.assert_array_equal(trained.get_weights()[0], after_two)


@pytest.mark.parametrize(("patience", "epochs"), [(1, 3), (2, 4), (3, 5), (4, 6), (None, 6)])
def test_patience(tree, monkeypatch, patience, epochs):
    scripted(monkeypatch)
    history = trained_on(tree, epochs=6, patience=patience)[1]
    assert history.dev_accuracy == SCRIPT[:epochs]
    assert history.best_epoch == (5 if epochs == 6 else 1)


def test_dev_accuracy_is_that_of_the_weights(tree):
    trained, history = trained_on(tree)
    assert dev_accuracy(trained, tree) == max(history.dev_accuracy) > 0.8


def test_seeds(tree):
    weights = [trained_on(tree, seed=seed, epochs=2)[0].get_weights()[0] for seed in (0, 0, 1)]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert np.abs(weights[0] - weights[2]).max() > 1e-3


def test_decay_goes_to_zero(tree, monkeypatch):
    given = []
    run = EpochLoop.run

    def noted(self, true, false, batch, rates):
        given.append(rates)
        return run(self, true, false, batch, rates)

    monkeypatch.setattr(EpochLoop, "run", noted)
    # 258 pairs in batches of 100 are 3 steps, 6 in two epochs; the depths of the tree give
    # 2*1 + 4*2 + 8*3 + 16*4 + 32*5 = 258 pairs.
    trained_on(tree, epochs=2, batch=100, learning_rate=0.6, decay=True)
    np.testing.assert_allclose(np.concatenate(given), [0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
    given.clear()
    trained_on(tree, epochs=2, batch=100, learning_rate=0.6)
    np.testing.assert_allclose(np.concatenate(given), [0.6] * 6)


def test_known_pairs_are_never_corrupted_ones(tree, monkeypatch):
    drawn = []
    run = EpochLoop.run

    def noted(self, true, false, batch, rates):
        drawn.append((true, false))
        return run(self, true, false, batch, rates)

    monkeypatch.setattr(EpochLoop, "run", noted)
    closure, pairs, labels, known = tree
    for filtered in (known, None):
        trained = HypernymModel(63, 8, seed=1)
        train_hypernymy(trained, closure, pairs, labels, known=filtered, epochs=2, batch=50)
    shares = [known.contains(false).mean() for _, false in drawn]
    assert shares[:2] == [0, 0]
    assert min(shares[2:]) > 0.03
    # Every pair once an epoch, in another order, corrupted anew.
    for true, _ in drawn:
        assert sorted(true.tolist()) == closure.tolist()
    assert drawn[0][0].tolist() != drawn[1][0].tolist()
    assert drawn[0][1].tolist() != drawn[1][1].tolist()


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("batch", 0), ("patience", 0), ("adam", "lasy"), ("margin", -1.0)]
)
def test_bad_arguments(tree, name, value):
    with raises_argument(name):
        trained_on(tree, **{name: value})


def test_nothing_to_learn_from_and_divergence(tree):
    _, pairs, labels, _ = tree
    with pytest.raises(DataError, match="`train`"):
        train_hypernymy(model(), np.empty((0, 2), np.int32), pairs, labels)
    with pytest.raises(DataError, match="epoch 1"):
        trained_on(tree, learning_rate=1e30)
