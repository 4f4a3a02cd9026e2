"""Perplexity: the oracle, and baselines by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracles import TOLERANCE, oracle
from vsemb.errors import DataError
from vsemb.systems.captions.validation import Likelihood, uniform_likelihood, unigram_likelihood


def test_oracle() -> None:
    given, expected = oracle("perplexity_base2").inputs, oracle("perplexity_base2").expected
    log_probs = [math.log(p) for of_one in given["token_probabilities"] for p in of_one]
    likelihood = Likelihood(sum(log_probs), len(log_probs))
    np.testing.assert_allclose(likelihood.perplexity, expected["ppl"], **TOLERANCE)
    np.testing.assert_allclose(2**-likelihood.log2_likelihood, expected["ppl"], **TOLERANCE)


def test_ends_of_what_is_possible() -> None:
    assert Likelihood(0.0, 3).perplexity == 1.0
    assert Likelihood(2 * math.log(1 / 8), 2).perplexity == pytest.approx(8)
    assert Likelihood(-math.inf, 2).perplexity == math.inf
    assert Likelihood(-1e6, 2).perplexity == math.inf
    with pytest.raises(DataError, match="NaN"):
        Likelihood(math.nan, 2)


def test_baselines_by_hand() -> None:
    # Targets END END 2 2 2 3 of four ids; in training, END 2 2 2 3 3 3 3 and never 1.
    counts, training = np.array([2, 0, 3, 1]), np.array([1, 0, 3, 4])
    assert uniform_likelihood(counts).perplexity == pytest.approx(4)
    expected = 2 * math.log(1 / 8.5) + 3 * math.log(3 / 8.5) + math.log(4 / 8.5)
    likelihood = unigram_likelihood(counts, training)
    assert likelihood.total == pytest.approx(expected) and likelihood.count == 6
    # The best there is without context: where training is as the targets are.
    best = unigram_likelihood(counts, 1000 * counts).perplexity
    assert best < likelihood.perplexity and best < 4
