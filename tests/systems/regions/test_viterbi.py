"""The best chain against all chains, the oracle at five affinities, and what padding may do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from vsemb.systems.regions.alignment import phrases
from vsemb.systems.regions.viterbi import best_chain

# Sums of up to eight float32 terms of order 1.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def energy(unaries: np.ndarray, path: np.ndarray, affinity: float) -> float:
    """Equations 10 to 12 of one chain, (words, regions) and (words,)."""
    return float(unaries[np.arange(len(path)), path].sum() + affinity * np.sum(path[1:] == path[:-1]))


def best_of_all(unaries: np.ndarray, affinity: float) -> float:
    chains = itertools.product(range(unaries.shape[1]), repeat=len(unaries))
    return max(energy(unaries.astype(float), np.array(chain), affinity) for chain in chains)


def decode(unaries: np.ndarray, affinity: float) -> tuple[np.ndarray, float]:
    """One sentence without padding."""
    steps, count = unaries.shape
    path, score = best_chain(unaries[None], np.ones((1, steps), bool), np.ones((1, count), bool), affinity)
    assert (path.dtype, score.dtype) == (tf.int32, tf.float32)
    return path.numpy()[0], float(score[0])


CASE = oracle("dvsa_mrf_decode")


@pytest.mark.parametrize("affinity", CASE.inputs["betas"])
def test_oracle(affinity: float) -> None:
    expected = CASE.expected[str(affinity)]
    path, score = decode(np.array(CASE.inputs["unary"], np.float32), affinity)
    assert path.tolist() == expected["path"]
    np.testing.assert_allclose(score, expected["score"], **TOLERANCE)
    assert [[region, length] for region, _, length in phrases(path)] == expected["segments"]


def padded(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Twelve sentences of up to 6 words on up to 4 regions, padding anywhere, each with its affinity."""
    generator = np.random.default_rng(seed)
    unaries = generator.normal(size=(12, 6, 4)).astype(np.float32)
    # Padding whose products would be the best of all, were they looked at.
    words, regions = generator.random((12, 6)) < 0.8, generator.random((12, 4)) < 0.8
    words[0], words[1], regions[2] = True, False, False
    unaries = np.where(words[..., None] & regions[:, None], unaries, 50)
    return unaries, words, regions, generator.choice([0, 0.1, 0.5, 2, 30], 12).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_equals_all_chains(seed: int) -> None:
    unaries, words, regions, affinity = padded(seed)
    paths, scores = (x.numpy() for x in best_chain(unaries, words, regions, affinity))
    for row, path in enumerate(paths):
        some = words[row].any() and regions[row].any()
        assert ((path >= 0) == (words[row] & some)).all()
        if not some:
            assert scores[row] == 0
            continue
        chain = path[words[row]]
        assert regions[row][chain].all()
        given = unaries[row][words[row]]
        real = given[:, regions[row]]
        np.testing.assert_allclose(scores[row], best_of_all(real, affinity[row]), **CLOSE)
        np.testing.assert_allclose(energy(given.astype(float), chain, affinity[row]), scores[row], **CLOSE)


def test_more_padding_changes_nothing() -> None:
    unaries, words, regions, affinity = padded(7)
    path, score = best_chain(unaries, words, regions, affinity)
    wider = np.pad(unaries, [(0, 0), (0, 3), (0, 2)], constant_values=50)
    more = best_chain(wider, np.pad(words, [(0, 0), (0, 3)]), np.pad(regions, [(0, 0), (0, 2)]), affinity)
    np.testing.assert_array_equal(more[0][:, :6], path)
    assert (more[0].numpy()[:, 6:] == -1).all()
    np.testing.assert_allclose(more[1], score, **CLOSE)


def test_without_affinity_every_word_has_its_best_region() -> None:
    unaries = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    path, score = decode(unaries, 0.0)
    assert path.tolist() == unaries.argmax(1).tolist()
    np.testing.assert_allclose(score, unaries.max(1).sum(), **CLOSE)


@pytest.mark.parametrize("affinity", [100.0, 1e8, 1e30])
def test_with_a_huge_one_all_have_the_best_for_all(affinity: float) -> None:
    # 1e8 and a unary of 1 are no more than 1e8 in float32; the choice among regions must not suffer.
    unaries = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    path, score = decode(unaries, affinity)
    best = unaries.sum(0).argmax()
    assert path.tolist() == [best] * 9
    np.testing.assert_allclose(score, unaries[:, best].sum() + 8 * affinity, rtol=1e-5)


def test_an_infinite_one_too() -> None:
    path, score = decode(np.array([[1, 0], [0, 2]], np.float32), np.inf)
    assert path.tolist() == [1, 1] and score == np.inf
    assert decode(np.array([[1, 0]], np.float32), np.inf) == ([0], 1.0)


def test_one_affinity_for_all_or_one_an_image() -> None:
    unaries, words, regions, _ = padded(3)
    one = best_chain(unaries, words, regions, 0.5)
    each = best_chain(unaries, words, regions, np.full(12, 0.5, np.float32))
    for a, b in zip(one, each, strict=True):
        np.testing.assert_array_equal(a, b)


UNKNOWN = [
    tf.TensorSpec([None, None, None], tf.float32),
    tf.TensorSpec([None, None], tf.bool),
    tf.TensorSpec([None, None], tf.bool),
    tf.TensorSpec([None], tf.float32),
]


def test_in_a_saved_graph_of_unknown_shapes(tmp_path) -> None:
    module = tf.Module()
    module.decode = tf.function(best_chain, autograph=False, input_signature=UNKNOWN)
    tf.saved_model.save(module, str(tmp_path))
    reloaded = tf.saved_model.load(str(tmp_path)).decode
    for rows, steps in ((12, 6), (3, 1), (0, 4)):
        unaries, words, regions, affinity = (x[:rows] for x in padded(5))
        given = unaries[:, :steps], words[:, :steps], regions, affinity
        expected = best_chain(*given)
        for found in (module.decode(*map(tf.constant, given)), reloaded(*map(tf.constant, given))):
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], **CLOSE)


def test_neighbours_in_a_batch_change_nothing() -> None:
    unaries, words, regions, affinity = padded(4)
    whole = best_chain(unaries, words, regions, affinity)
    unaries[5] = np.nan
    others = np.arange(12) != 5
    broken = best_chain(unaries, words, regions, affinity)
    for a, b in zip(whole, broken, strict=True):
        np.testing.assert_array_equal(a.numpy()[others], b.numpy()[others])


@pytest.mark.parametrize(("steps", "count"), [(3, 0), (0, 3), (0, 0)], ids=str)
def test_no_words_and_no_regions_at_all(steps: int, count: int) -> None:
    unaries = np.zeros((2, steps, count), np.float32)
    path, score = best_chain(unaries, np.ones((2, steps), bool), np.ones((2, count), bool), 0.5)
    np.testing.assert_array_equal(path, np.full((2, steps), -1, np.int32))
    np.testing.assert_array_equal(score, [0, 0])


def test_phrases() -> None:
    assert phrases([]) == phrases([-1, -1]) == []
    assert phrases(np.array([3, 3, -1, 3, 0])) == [(3, 0, 2), (3, 3, 1), (0, 4, 1)]
    assert all(type(value) is int for phrase in phrases(np.array([1, 1], np.int32)) for value in phrase)
