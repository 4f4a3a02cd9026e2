"""Pairwise ranking: hand-computed tables, a double loop, finite differences, the warm-up."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_loss
from tests.losses.slow import finite_differences, random_labels, ranking_rows
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb import similarities
from vsemb.losses import PairwiseRanking
from vsemb.models.in_batch import pair_labels

TABLES = ["ranking_loss_3x3", "ranking_loss_3x3_margin1", "ranking_loss_3x3_same_image_masked"]


def both_directions(
    loss: PairwiseRanking, labels: np.ndarray, scores: np.ndarray, mask: np.ndarray | None = None
) -> tuple[float, float]:
    return float(loss(labels, scores, mask)), float(loss(labels.T, scores.T, None if mask is None else mask.T))


def labels_of(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, mask = pair_labels(ids, ids, np.arange(len(ids)), np.arange(len(ids)))
    return labels.numpy(), mask.numpy()


@pytest.mark.parametrize("name", TABLES)
def test_oracle_tables(name: str) -> None:
    entry = oracle(name)
    scores = np.array(entry.inputs["scores"], np.float32)
    ids = np.array(entry.inputs.get("image_ids", range(3)), np.int64)
    labels, mask = labels_of(ids)
    captions, images = both_directions(PairwiseRanking(entry.inputs["margin"]), labels, scores, mask)
    expected = entry.expected
    np.testing.assert_allclose(captions, expected["sum_caption_negatives"], **TOLERANCE)
    np.testing.assert_allclose(images, expected["sum_image_negatives"], **TOLERANCE)
    np.testing.assert_allclose(captions + images, expected["sum_of_hinges"], **TOLERANCE)
    hardest = PairwiseRanking(entry.inputs["margin"], "hardest")
    expected_max = expected["max_of_hinges_sum_over_queries"]
    np.testing.assert_allclose(sum(both_directions(hardest, labels, scores, mask)), expected_max, **TOLERANCE)
    mean = PairwiseRanking(entry.inputs["margin"], reduction="sum_over_batch_size")
    expected_mean = expected["sum_of_hinges_mean_over_batch"]
    np.testing.assert_allclose(sum(both_directions(mean, labels, scores, mask)), expected_mean, **TOLERANCE)
    hinges = np.array(expected["hinge_caption_negatives"])
    rows = PairwiseRanking(entry.inputs["margin"]).call(labels, scores, mask)
    np.testing.assert_allclose(rows, hinges.sum(axis=1), **TOLERANCE)


def test_the_default_is_the_sum_over_all_negatives_with_a_margin_of_a_fifth() -> None:
    # Rows (0.5; 0.4, 0.6): 0.2 - 0.5 + 0.4 and 0.2 - 0.5 + 0.6.
    np.testing.assert_allclose(PairwiseRanking()([[1, 0, 0]], [[0.5, 0.4, 0.6]]), 0.1 + 0.3, rtol=1e-5)


@pytest.mark.parametrize("name", ["ranking_loss_collapsed_2", "ranking_loss_collapsed_128"])
def test_collapsed_value(name: str) -> None:
    entry = oracle(name)
    n, margin = entry.inputs["n"], entry.inputs["margin"]
    scores = np.full((n, n), entry.inputs["score_everywhere"], np.float32)
    labels = np.eye(n, dtype=np.int32)
    cases = {"hardest": "max_of_hinges_sum_over_queries", "all": "sum_of_hinges"}
    for negatives, key in cases.items():
        loss = PairwiseRanking(margin, negatives)
        np.testing.assert_allclose(sum(both_directions(loss, labels, scores)), entry.expected[key], rtol=1e-5)
        np.testing.assert_allclose(loss.collapsed_value(n, n), entry.expected[key], rtol=1e-6)


def test_cosine_scores_then_loss() -> None:
    entry = oracle("cosine_scores_and_loss")
    cosine = similarities.get("cosine")
    images = cosine.normalize(np.array(entry.inputs["image_vectors"], np.float32))
    texts = cosine.normalize(np.array(entry.inputs["sentence_vectors"], np.float32))
    scores = cosine.scores(images, texts).numpy()
    np.testing.assert_allclose(scores, entry.expected["cosine"], **TOLERANCE)
    loss = PairwiseRanking(entry.inputs["margin"])
    captions, other = both_directions(loss, np.eye(3, dtype=np.int32), scores)
    np.testing.assert_allclose(captions, entry.expected["sum_caption_negatives"], **TOLERANCE)
    np.testing.assert_allclose(other, entry.expected["sum_image_negatives"], **TOLERANCE)


def test_dot_with_only_the_texts_normalized() -> None:
    # The released Kiros code in training: image vectors keep their length.
    entry = oracle("released_kiros_training_scores")
    images = np.array(entry.inputs["image_vectors"], np.float32)
    texts = similarities.get("cosine").normalize(np.array(entry.inputs["sentence_vectors"], np.float32))
    scores = similarities.get("dot").scores(images, texts).numpy()
    np.testing.assert_allclose(scores, entry.expected["scores"], **TOLERANCE)
    total = sum(both_directions(PairwiseRanking(entry.inputs["margin"]), np.eye(3, dtype=np.int32), scores))
    np.testing.assert_allclose(total, entry.expected["sum_of_hinges"], **TOLERANCE)


def test_region_word_scores_then_loss() -> None:
    entry = oracle("dvsa_score_and_loss")

    def padded(sets: list) -> np.ndarray:
        rows = np.zeros((len(sets), 3, 3), np.float32)
        for row, items in zip(rows, sets, strict=True):
            row[: len(items)] = items
        return rows

    images = padded(entry.inputs["regions_per_image"])
    sentences = padded(entry.inputs["words_per_sentence"])
    scores = similarities.get("max-sim").scores(images, sentences).numpy()
    total = sum(both_directions(PairwiseRanking(margin=1.0), np.eye(2, dtype=np.int32), scores))
    np.testing.assert_allclose(total, entry.expected["loss_without_l_equal_k"], **TOLERANCE)
    # Read literally, loss 9 ranks each pair against itself too: the margin, in both directions.
    np.testing.assert_allclose(total + 2 * len(images), entry.expected["loss_literal"], **TOLERANCE)
    # Two pairs of one image have nothing to rank.
    labels, mask = labels_of(np.array([7, 7]))
    assert both_directions(PairwiseRanking(margin=1.0), labels, scores, mask) == (0, 0)


@pytest.mark.parametrize("shape", [(4, 4), (3, 9)])
@pytest.mark.parametrize(
    ("negatives", "step", "weight"), [("all", None, 0), ("hardest", None, 1), ("hardest", 15, 0.5)]
)
def test_equals_double_loop_forward_and_gradient(shape, negatives, step, weight) -> None:
    labels, mask, scores = random_labels(*shape, seed=7)
    loss = PairwiseRanking(0.3, negatives, warmup_steps=0 if step is None else 20)
    loss.bind_step(step)

    def slow(values: np.ndarray) -> float:
        return ranking_rows(labels, mask, values, 0.3, weight).sum()

    variable = tf.constant(scores.astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = loss(labels, variable, mask)
    # float32 sums of some ten terms of order 1.
    np.testing.assert_allclose(float(value), slow(scores), rtol=1e-5)
    # The loss is piecewise linear: central differences are exact but for float64 rounding / 1e-6.
    expected = finite_differences(slow, scores)
    np.testing.assert_allclose(tape.gradient(value, variable), expected, atol=1e-5)


def test_warm_up_passes_from_the_sum_to_the_hardest() -> None:
    loss = PairwiseRanking(0.2, "hardest", warmup_steps=100)
    # Row: own 0.5, negatives 0.6 and 0.4: hinges 0.3 and 0.1; sum 0.4, hardest 0.3.
    row = ([[1, 0, 0]], [[0.5, 0.6, 0.4]])
    for step, expected in ((0, 0.4), (50, 0.4), (75, 0.35), (100, 0.3), (1000, 0.3)):
        loss.bind_step(step)
        np.testing.assert_allclose(float(loss(*row)), expected, rtol=1e-5)
    without = PairwiseRanking(0.2, "hardest")
    without.bind_step(0)
    np.testing.assert_allclose(float(without(*row)), 0.3, rtol=1e-5)


@pytest.mark.parametrize("negatives", ["all", "hardest"])
def test_a_query_without_negatives_costs_nothing(negatives: str) -> None:
    variable = tf.constant([[0.1, 0.9]])
    with tf.GradientTape() as tape:
        tape.watch(variable)
        value = PairwiseRanking(0.2, negatives)([[1, 0]], variable, np.array([[True, False]]))
    assert float(value) == 0
    assert not tape.gradient(value, variable).numpy().any()


@pytest.mark.parametrize("arguments", [{}, {"negatives": "hardest", "warmup_steps": 5, "margin": 1.0}])
def test_contract(arguments) -> None:
    check_loss(PairwiseRanking(**arguments), *random_labels(5, 8, seed=1))
    check_loss(PairwiseRanking(**arguments, reduction="sum_over_batch_size"), *random_labels(5, 8, seed=1))


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"margin": -0.1}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"negatives": "hard"}, "negatives"),
        ({"warmup_steps": -1}, "warmup_steps"),
    ],
)
def test_bad_arguments(arguments, argument: str) -> None:
    with raises_argument(argument):
        PairwiseRanking(**arguments)
