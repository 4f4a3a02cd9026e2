"""The score of a caption by hand: repetition, weights, duplicates."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.language.ranking import RankingWeights, first_of_each, ranking_scores, repetition_penalty

# Ids: 0 padding, 1 unknown, 2 a stop word, 3 and up the others.
STOP = tf.constant([False, False, True, False, False, False])


@pytest.mark.parametrize(
    ("ids", "penalty"),
    [
        ([3, 4, 5, 0, 0], 1),
        ([3, 4, 3, 0, 0], 1 / 2),
        ([3, 3, 3, 4, 4], 1 / 3),  # The most repeated word alone counts.
        ([2, 2, 2, 3, 0], 1),
        ([0, 0, 0, 0, 0], 1),
    ],
)
def test_repetition(ids: list[int], penalty: float) -> None:
    np.testing.assert_allclose(repetition_penalty([ids], STOP), [penalty], rtol=1e-6)
    # Rows do not see each other.
    beside = repetition_penalty([[5, 5, 5, 5, 5], ids], STOP)
    np.testing.assert_allclose(beside, [1 / 5, penalty], rtol=1e-6)


def test_scores_by_hand() -> None:
    cosine, penalty = tf.constant([0.6, 0.6, -0.2]), tf.constant([1.0, 0.5, 0.5])
    language, targets = tf.constant([-10.0, -8.0, -8.0]), tf.constant([5.0, 4.0, 4.0])
    parts = (cosine, penalty, language, targets)
    # 2 x 0.6 - 0.1 x 10; 2 x 0.6 x 0.5 - 0.1 x 8; a negative cosine gets worse: -2 x 0.2 / 0.5 - 0.8
    np.testing.assert_allclose(ranking_scores(*parts, RankingWeights(2, 0.1)), [0.2, -0.2, -1.6], rtol=1e-5)
    # A word at a time: 1.2 - 0.1 x 2; 0.6 - 0.2; -0.8 - 0.2
    per_word = ranking_scores(*parts, RankingWeights(2, 0.1, per_word=True))
    np.testing.assert_allclose(per_word, [1.0, 0.4, -1.0], rtol=1e-5)


def test_more_repetition_is_never_better() -> None:
    for cosine in (0.5, -0.5):
        penalties = tf.constant([1.0, 1 / 2, 1 / 3, 1 / 4])
        same = tf.fill([4], cosine)
        scores = ranking_scores(same, penalties, 0 * same, 1 + 0 * same, RankingWeights())
        assert (np.diff(scores) < 0).all()


def test_the_first_of_each_row() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, (60, 3)).astype(np.int32)
    expected = [row for row in range(60) if ids[row].tolist() not in ids[:row].tolist()]
    np.testing.assert_array_equal(first_of_each(tf.constant(ids)), expected)


def test_weights_come_back() -> None:
    weights = RankingWeights(0.5, 0.25, per_word=True)
    assert RankingWeights.from_json(weights.to_json()) == weights


@pytest.mark.parametrize("broken", [None, {}, {"translation": "x", "language": 0, "per_word": False}])
def test_broken_weights_are_refused(broken: object) -> None:
    with pytest.raises(DataError, match="no weights"):
        RankingWeights.from_json(broken)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_weights_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(InvalidArgumentError, match="language"):
        RankingWeights(language=value)
