"""Rank counting against sorting by brute force, with ties and several positives."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from tests.oracles import oracle
from vsemb.ops.ranks import best_positive, count_reaching, entries, ranks


def slow_ranks(scores: np.ndarray, positive: np.ndarray) -> list[int]:
    """The place of the best positive when all others of its score are put before it."""
    found = []
    for row, own in zip(scores, positive, strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], own[i]))
        others_before = 0
        for candidate in order:
            if own[candidate]:
                break
            others_before += 1
        found.append(others_before)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_equals_brute_force_with_ties(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Few distinct scores, so that most rows have ties across the border.
    scores = generator.integers(0, 4, (30, 17)).astype(np.float32)
    positive = generator.random((30, 17)) < 0.2
    positive[np.arange(30), generator.integers(17, size=30)] = True
    assert ranks(scores, positive).numpy().tolist() == slow_ranks(scores, positive)


def test_ties_count_against_the_model() -> None:
    # The oracle's pessimistic ranks also count an image's own second caption, equal here in both
    # rows, which the project's contract does not: "candidates that are not its own positives".
    entry = oracle("retrieval_ties")
    scores = np.array(entry.inputs["scores"], np.float32)
    positive = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], bool)
    own_equals = [1, 1]
    expected = np.array(entry.expected["image_to_text_pessimistic"]) - own_equals
    assert ranks(scores, positive).numpy().tolist() == expected.tolist() == [1, 2]


def test_a_constant_model_ranks_last() -> None:
    scores, positive = np.zeros((4, 4), np.float32), np.eye(4, dtype=bool)
    assert ranks(scores, positive).numpy().tolist() == [3, 3, 3, 3]


def test_infinite_scores_have_an_order() -> None:
    scores = np.array([[np.inf, 1.0, -np.inf], [-np.inf, 0.0, 1.0]], np.float32)
    positive = np.array([[True, False, False], [True, False, False]])
    assert ranks(scores, positive).numpy().tolist() == [0, 2]


def test_best_positive() -> None:
    scores = np.array([[0.1, 0.9, 0.5]], np.float32)
    np.testing.assert_allclose(best_positive(scores, np.array([[True, False, True]])), [[0.5]])


@pytest.mark.parametrize("columns", [7, 1100], ids=["plain", "compiled"])
def test_count_reaching(columns: int) -> None:
    scores = np.random.default_rng(0).integers(0, 9, (2000, columns)).astype(np.float32)
    tensor = ops.convert_to_tensor(scores)
    for axis, least in ((1, scores[:, :1]), (0, scores[:1])):
        expected = (scores >= least).sum(axis=axis)
        np.testing.assert_array_equal(count_reaching(tensor, least, axis=axis), expected)
    assert entries(tensor, np.array([3, 1999]), np.array([6, 0])).tolist() == [scores[3, 6], scores[1999, 0]]
