"""Arithmetic: equation 15 by its oracle and by hand; composition and abstraction, what they are in an order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.ops.order import order_violation_matrix
from vsemb.searching.arithmetic import abstract, combine, compose, resort_by_mean
from vsemb.similarities import Cosine, Dot

# A case worked out for this project: query image 1 of five, minus one word, plus another.
QUERY = [0.700140042, 0.700140042, 0.1400280084]
MINUS = [0.9938837347, 0.1104315261, 0.0]
PLUS = [0.0, 0.099503719, 0.9950371902]
IMAGES = [
    QUERY,
    [0.0705345616, 0.7053456159, 0.7053456159],
    [0.0, 0.0, 1.0],
    [1.0, 0.0, 0.0],
    [0.2417468892, 0.6446583712, 0.7252406676],
]
TARGET = [-0.2159838133, 0.506763857, 0.8345905497]
SCORES = [0.3204528045, 0.9308841265, 0.8345905497, -0.2159838133, 0.8797551551]


def test_equation_15():
    target = combine(np.array(QUERY), [np.array(MINUS)], [np.array(PLUS)], Cosine().normalize)
    np.testing.assert_allclose(target, TARGET, atol=1e-6)
    scores = np.asarray(Cosine().scores(np.array(IMAGES, np.float32), target[None]))[:, 0]
    np.testing.assert_allclose(scores, SCORES, atol=1e-6)
    assert np.argsort(-scores).tolist() == [1, 4, 2, 0, 3]


def test_several_words_add_up_and_dot_stays_raw():
    # (1, 1) - (1, 0) - (0, 2) + (3, 3) = (3, 2)
    minus = [np.array([1.0, 0.0]), np.array([0.0, 2.0])]
    assert combine(np.ones(2), minus, [np.array([3.0, 3.0])], Dot().normalize).tolist() == [3.0, 2.0]


def test_the_query_itself_is_not_changed():
    query = np.ones(2, np.float32)
    combine(query, [query], [query * 2], Cosine().normalize)
    assert query.tolist() == [1.0, 1.0]


def test_results_are_sorted_by_distance_to_their_mean():
    # The mean of (0,0), (4,0), (0,4), (0,0) is (1,1): distances sqrt 2, sqrt 10, sqrt 10, sqrt 2.
    embeddings = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    order, distances = resort_by_mean(embeddings)
    assert order.tolist() == [0, 3, 1, 2]
    np.testing.assert_allclose(distances, np.sqrt([2, 2, 10, 10]))
    assert resort_by_mean(np.zeros((0, 2)))[0].tolist() == []
    assert resort_by_mean(np.ones((1, 2)))[0].tolist() == [0]


def test_nothing_left_is_refused():
    word = np.array([0.6, 0.8], np.float32)
    with raises_argument("minus"):
        combine(word, [word], [], Cosine().normalize)


A, B, C = np.array([3.0, 1, 0]), np.array([1.0, 2, 0]), np.array([0.0, 0, 5])


def test_composition_and_abstraction_by_hand():
    assert compose(A, B).tolist() == [3, 2, 0] and abstract(A, B).tolist() == [1, 1, 0]
    assert compose(A, B, C).tolist() == [3, 2, 5] and abstract(A, B, C).tolist() == [0, 0, 0]
    assert compose(np.stack([A, C]), np.stack([B, B])).tolist() == [[3, 2, 0], [1, 2, 5]]
    assert compose(A, B).dtype == np.float32 and A.tolist() == [3, 1, 0]


def test_what_lies_below_the_composition_lies_below_both_and_the_reverse():
    # Whole numbers, so that violations of zero are exact and common: (6 / 9)³, 30 %.
    points = np.random.default_rng(0).integers(0, 3, (400, 3)).astype(np.float32)
    a, b = points[:40, None], points[40:80, None]
    below = np.asarray(order_violation_matrix(points, points)) == 0  # [x, y]: x lies below y
    for one, other, i, j in zip(a, b, range(40), range(40, 80), strict=True):
        composed = np.asarray(order_violation_matrix(points, compose(one, other)))[:, 0] == 0
        assert composed.tolist() == (below[:, i] & below[:, j]).tolist()
        abstracted = np.asarray(order_violation_matrix(abstract(one, other), points))[0] == 0
        assert abstracted.tolist() == (below[i] & below[j]).tolist()
    assert below.mean() == pytest.approx(0.3, abs=0.05)


def test_what_is_no_composition():
    for operation in (compose, abstract):
        for given in ((), (A,), (A, B[:2]), (A, B[None])):
            with raises_argument("embeddings"):
                operation(*given)
