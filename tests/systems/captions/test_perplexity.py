"""Perplexity: the oracle, and baselines by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracles import TOLERANCE, oracle
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.systems.captions.perplexity import (
    log2_likelihood,
    perplexity,
    uniform_likelihood,
    unigram_likelihood,
)


def test_oracle() -> None:
    given, expected = oracle("perplexity_base2").inputs, oracle("perplexity_base2").expected
    found = [math.log(p) for of_one in given["token_probabilities"] for p in of_one]
    np.testing.assert_allclose(perplexity(np.array(found), len(found)), expected["ppl"], **TOLERANCE)
    # As rows with padding, and as their sum: the same.
    rows = np.array([[*found[:3]], [found[3], 0, 0]])
    np.testing.assert_allclose(perplexity(rows, 4), expected["ppl"], **TOLERANCE)
    np.testing.assert_allclose(perplexity(sum(found), 4), expected["ppl"], **TOLERANCE)
    np.testing.assert_allclose(2 ** -log2_likelihood(rows, 4), expected["ppl"], **TOLERANCE)


def test_ends_of_what_is_possible() -> None:
    assert perplexity(np.zeros(3), 3) == 1.0
    assert perplexity(np.log([1 / 8, 1 / 8]), 2) == pytest.approx(8)
    assert perplexity(-math.inf, 2) == math.inf
    assert perplexity(-1e6, 2) == math.inf
    with pytest.raises(InvalidArgumentError, match="count"):
        perplexity(0.0, 0)
    with pytest.raises(DataError, match="NaN"):
        perplexity(np.array([0.0, np.nan]), 2)


def test_baselines_by_hand() -> None:
    # Targets END END 2 2 2 3 of four ids; in training, END 2 2 2 3 3 3 3 and never 1.
    counts, training = np.array([2, 0, 3, 1]), np.array([1, 0, 3, 4])
    assert uniform_likelihood(counts).perplexity == pytest.approx(4)
    expected = 2 * math.log(1 / 8.5) + 3 * math.log(3 / 8.5) + math.log(4 / 8.5)
    found = unigram_likelihood(counts, training)
    assert found.total == pytest.approx(expected) and found.count == 6
    # The best there is without context: where training is as the targets are.
    best = unigram_likelihood(counts, 1000 * counts).perplexity
    assert best < found.perplexity and best < 4
