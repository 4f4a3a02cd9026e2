"""Sampling: which words may be drawn, how often, and what is reported of them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.systems.captions.next_words import HistoryModel, as_found, assert_same, slow_beam
from vsemb.errors import InvalidArgumentError
from vsemb.systems.captions.beam_search import SearchOptions
from vsemb.systems.captions.sampling import Sampler, sample

PROBABILITIES = np.array([0.05, 0.1, 0.5, 0.05, 0.3], np.float32)


def draws(sampler: Sampler, rows: int = 4000) -> np.ndarray:
    """The share of each word among many draws."""
    drawn = sampler(tf.tile(tf.math.log(PROBABILITIES)[None], [rows, 1]))
    assert drawn.dtype == tf.int32 and drawn.shape == (rows,)
    return np.bincount(drawn, minlength=len(PROBABILITIES)) / rows


@pytest.mark.parametrize(
    ("rule", "temperature", "wanted"),
    [
        ("greedy", 1.0, [0, 0, 1, 0, 0]),
        ("random", 1.0, PROBABILITIES),
        ("random", 0.5, PROBABILITIES**2 / np.sum(PROBABILITIES**2)),
        ("top-k=1", 1.0, [0, 0, 1, 0, 0]),
        ("top-k=2", 1.0, [0, 0, 5 / 8, 0, 3 / 8]),
        ("top-k=5", 1.0, PROBABILITIES),
        # 0.5 alone is not more than 0.6, 0.5 + 0.3 is.
        ("top-p=0.6", 1.0, [0, 0, 5 / 8, 0, 3 / 8]),
        ("top-p=0.3", 1.0, [0, 0, 1, 0, 0]),
        ("top-p=1", 1.0, PROBABILITIES),
    ],
)
def test_words_are_drawn_as_often_as_the_rule_says(rule, temperature, wanted):
    found = draws(Sampler.parse(rule, temperature=temperature, seed=3))
    # Four standard deviations of a share of 4,000 draws are 0.032 at most; what is cut off is never drawn.
    np.testing.assert_allclose(found, wanted, atol=0.032)
    assert not found[np.asarray(wanted) == 0].any()


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "beam",
        "greedy=1",
        "random=",
        "top-k",
        "top-k=0",
        "top-k=2.5",
        "top-k=inf",
        "top-k=x",
        "top-p=0",
        "top-p=1.1",
    ],
)
def test_rules_that_are_none(rule):
    with pytest.raises(InvalidArgumentError, match="`sample`.*greedy, random, top-k=K"):
        Sampler.parse(rule)


@pytest.mark.parametrize("temperature", [0.0, 1e-40, -1.0, float("inf"), float("nan")])
def test_temperatures_that_are_none(temperature):
    with pytest.raises(InvalidArgumentError, match="`temperature`.*> 0"):
        Sampler.parse("random", temperature=temperature)


def test_more_of_the_likeliest_than_there_are_words():
    with pytest.raises(InvalidArgumentError, match="top-k=6.*top-k=5 at most"):
        draws(Sampler.parse("top-k=6"))


def compiled(model: HistoryModel, sampler: Sampler, **options):
    @tf.function(input_signature=[{"history": tf.TensorSpec([None], tf.int32)}])
    def run(state):
        return sample(model.step, state, sampler, SearchOptions(**options), rows=tf.shape(state["history"])[0])

    return lambda rows: run(model.start(rows))


def test_greedy_is_a_beam_of_one_and_finds_one():
    model = HistoryModel(7, 1)
    found = compiled(model, Sampler("greedy"), n_best=3, max_words=6)(range(10))
    assert found.exists.numpy().tolist() == [[True, False, False]] * 10
    for row in range(10):
        assert_same(as_found(found, row), slow_beam(model, row, 1, max_words=6))


def test_what_is_said_of_samples_is_the_models():
    model = HistoryModel(7, 2, never=0.2)
    options = {"beam": 8, "max_words": 6, "min_words": 2, "length_penalty": 0.7}
    found = compiled(model, Sampler("random", temperature=2.0, seed=5), n_best=8, **options)(range(20))
    several = set()
    for row in range(20):
        samples = as_found(found, row)
        for one in samples:
            ids = (*one.words, 0) if one.finished else one.words
            wanted = sum(model.next(row, ids[:place])[word] for place, word in enumerate(ids))
            np.testing.assert_allclose(one.log_prob, wanted, atol=1e-5)
            assert 1 not in ids and len(one.words) >= 2 and one.finished == (len(one.words) < 6)
        keys = [(not one.finished, -one.score(0.7)) for one in samples]
        assert keys == sorted(keys)
        several.add(len({one.words for one in samples}))
    assert max(several) > 1
    np.testing.assert_array_equal(found.exists, found.log_probs > -np.inf)


def test_a_seed_gives_the_same_again():
    model = HistoryModel(7, 3)

    def twice(seed: int) -> list[np.ndarray]:
        run = compiled(model, Sampler.parse("top-p=0.9", seed=seed), n_best=5, max_words=6)
        return [run(range(10)).tokens.numpy() for _ in range(2)]

    first, second = twice(4), twice(4)
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()
    assert (first[0] != twice(5)[0]).any()


def test_no_rows_and_nothing_to_say():
    model = HistoryModel(7, 3)
    found = compiled(model, Sampler("random"), n_best=2, max_words=4)([])
    assert found.tokens.shape == (0, 2, 4) and found.log_probs.shape == (0, 2)
    nothing = tf.fill([2, 3], -np.inf)
    for rule in ("greedy", "random", "top-k=2", "top-p=0.5"):
        found = sample(
            lambda state, words: (nothing, state), {}, Sampler.parse(rule), SearchOptions(max_words=3), rows=2
        )
        assert not found.exists.numpy().any() and not found.tokens.numpy().any()
        assert not found.finished.numpy().any()
