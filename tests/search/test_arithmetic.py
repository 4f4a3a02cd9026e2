"""Arithmetic: equation 15 by its oracle and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import InvalidArgumentError
from vsemb.search import combine, resort_by_mean
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
    assert resort_by_mean(embeddings).tolist() == [0, 3, 1, 2]
    assert resort_by_mean(np.zeros((0, 2))).tolist() == []
    assert resort_by_mean(np.ones((1, 2))).tolist() == [0]


def test_nothing_left_is_refused():
    word = np.array([0.6, 0.8], np.float32)
    with pytest.raises(InvalidArgumentError, match="leave something"):
        combine(word, [word], [], Cosine().normalize)
