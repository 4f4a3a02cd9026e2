"""The smallest losses of a batch: by hand, against sorted numbers, without gradients of the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import random_labels, ranking_rows
from tests.raising import raises_argument
from vsemb import recipes
from vsemb.losses import InfoNCE, PairwiseRanking
from vsemb.losses.small_loss import AllPairs, SmallLoss, SmallLossPairs

# Hinges with a margin of 0.2: 0.1; 0.5 and 0.1; 0.1, 0.1 and 0.3; none.
SCORES = np.array([[0.9, 0.8, 0.1, 0.1], [0.8, 0.5, 0.4, 0.0], [0.1, 0.1, 0.2, 0.3], [0, 0, 0, 0.9]], np.float32)
LABELS = np.eye(4, dtype=np.int32)


@pytest.mark.parametrize(
    ("dropped", "expected"),
    [(0.0, [0.1, 0.6, 0.5, 0]), (0.25, [0.1, 0, 0.5, 0]), (0.5, [0.1, 0, 0, 0]), (0.9, [0, 0, 0, 0])],
)
def test_by_hand(dropped: float, expected: list[float]) -> None:
    # 0.9 leaves ceil(0.1 x 4) = 1 query.
    np.testing.assert_allclose(SmallLoss(PairwiseRanking(0.2), dropped).call(LABELS, SCORES), expected, atol=1e-6)


@pytest.mark.parametrize("dropped", [0.2, 0.55])
def test_against_sorted_numbers(dropped: float) -> None:
    labels, mask, scores = random_labels(9, 12, seed=3)
    values = ranking_rows(labels, mask, scores, 0.2, 1.0)
    kept = np.argsort(values)[: math.ceil((1 - dropped) * 9)]
    expected = np.zeros(9)
    expected[kept] = values[kept]
    loss = SmallLoss(PairwiseRanking(0.2, "hardest"), dropped)
    np.testing.assert_allclose(loss.call(labels, scores.astype(np.float32), mask), expected, atol=1e-6)


def test_queries_left_out_have_no_gradient() -> None:
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = SmallLoss(InfoNCE(0.5), 0.5)(LABELS, scores)
    gradient = tape.gradient(value, scores).numpy()
    values = InfoNCE(0.5).call(LABELS, SCORES).numpy()
    for row in range(4):
        assert gradient[row].any() == (values[row] <= np.sort(values)[1])


def test_contract() -> None:
    check_loss(SmallLoss(PairwiseRanking(0.2), 0.4), *random_labels(5, 8, seed=1))
    check_loss(SmallLoss(InfoNCE(0.5), 0.4), *random_labels(5, 8, seed=1))


def test_the_share_grows_with_the_steps_which_the_loss_inside_sees() -> None:
    loss = SmallLoss(PairwiseRanking(0.2, "hardest", warmup_steps=4), 0.5, warmup_steps=8)
    for step, kept in ((0, 4), (4, 3), (8, 2), (100, 2)):
        loss.bind_step(step)
        inside = PairwiseRanking(0.2, "hardest", warmup_steps=4)
        inside.bind_step(step)
        values = np.sort(inside.call(LABELS, SCORES))
        np.testing.assert_allclose(np.sort(loss.call(LABELS, SCORES))[-kept:], values[:kept], atol=1e-6)


def test_equal_losses_are_all_kept() -> None:
    equal = np.full((6, 6), 0.3, np.float32)
    loss = SmallLoss(PairwiseRanking(0.2), 0.5)
    np.testing.assert_allclose(float(loss(np.eye(6), equal)), loss.collapsed_value(6, 6) / 2, rtol=1e-6)


@pytest.mark.parametrize("rows", [[0], [1, 2], [0, 1, 2, 3]])
def test_nan_is_not_left_out(rows: list[int]) -> None:
    scores = SCORES.copy()
    scores[rows] = np.nan
    for loss in (PairwiseRanking(0.2), InfoNCE(0.5)):
        values = SmallLoss(loss, 0.5).call(LABELS, scores).numpy()
        assert np.isnan(values[rows]).all()


@pytest.mark.parametrize("queries", [10, 50, 100, 128])
def test_the_share_is_exact(queries: int) -> None:
    scores = np.random.default_rng(0).normal(size=(queries, queries)).astype(np.float32)
    for tenths in range(10):
        values = SmallLoss(InfoNCE(0.5), tenths / 10).call(np.eye(queries), scores).numpy()
        assert np.count_nonzero(values == 0) == tenths * queries // 10


def test_a_loss_with_terms_of_embeddings_is_refused() -> None:
    # They would keep the pairs that are left out.
    class OfItems(InfoNCE):
        over_items = True

    with raises_argument("loss"):
        SmallLoss(OfItems(0.5), 0.2)
    with raises_argument("loss"):
        recipes.get("meru").with_overrides(["pairs=small-loss"])


def test_no_queries_cost_nothing() -> None:
    assert float(SmallLoss(InfoNCE(0.5), 0.5, reduction="sum")(np.zeros((0, 3)), np.zeros((0, 3), np.float32))) == 0


def test_a_recipe_selects_pairs() -> None:
    loss = PairwiseRanking(0.2)
    assert AllPairs().select(loss, 10) is loss
    selected = SmallLossPairs(dropped=0.3, warmup_epochs=1.5).select(loss, 10)
    assert (selected.loss, selected.dropped, selected.warmup_steps) == (loss, 0.3, 15)
    recipe = recipes.get("vsepp", "tuned").with_overrides(["pairs=small-loss", "pairs.dropped=0.5"])
    assert recipe.pairs == SmallLossPairs(dropped=0.5)
    # Blocks of queries would each compare their own.
    with raises_argument("loss.block_size"):
        recipe.with_overrides(["loss.block_size=32"])


@pytest.mark.parametrize("dropped", [-0.1, 1.0, math.nan])
def test_a_share_that_cannot_be(dropped: float) -> None:
    with raises_argument("dropped"):
        SmallLoss(PairwiseRanking(0.2), dropped)
