"""The cross entropy of the next word against a slow one, forward and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from vsemb.systems.captions.next_word import NextWordCrossEntropy, next_word_log_probs

WORDS = 6
TEXT = np.array([[2, 5, 1, 3], [4, 0, 0, 0], [0, 0, 0, 0], [2, 2, 0, 0]], np.int32)


def make_logits(text: np.ndarray, seed: int = 0) -> np.ndarray:
    shape = (len(text), text.shape[1] + 1, WORDS)
    return np.random.default_rng(seed).normal(scale=2.0, size=shape).astype(np.float32)


def slow(text: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (n, steps + 1) and the gradient of minus their sum, word by word."""
    log_probs, gradient = np.zeros(logits.shape[:2]), np.zeros(logits.shape)
    for row, sentence in enumerate(text):
        words = [int(word) for word in sentence if word]
        for place, target in enumerate([*words, 0]):
            scores = logits[row, place].astype(np.float64)
            probabilities = np.exp(scores) / np.exp(scores).sum()
            log_probs[row, place] = np.log(probabilities[target])
            gradient[row, place] = probabilities - np.eye(WORDS)[target]
    return log_probs, gradient


def test_against_a_slow_one() -> None:
    logits = tf.constant(make_logits(TEXT))
    expected, gradient = slow(TEXT, logits.numpy())
    np.testing.assert_allclose(next_word_log_probs(TEXT, logits), expected, rtol=1e-5, atol=1e-6)
    loss = NextWordCrossEntropy()
    np.testing.assert_allclose(loss.call(TEXT, logits), -expected.sum(1), rtol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        mean = loss(TEXT, logits)
    np.testing.assert_allclose(float(mean), -expected.sum() / len(TEXT), rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(mean, logits), gradient / len(TEXT), rtol=1e-4, atol=1e-6)


def test_by_hand() -> None:
    # p(2) = 1/2, then p(END) = 1/4: 3 bits.
    logits = np.log(np.array([[[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]], np.float32))
    assert float(NextWordCrossEntropy()(np.array([[2]]), logits)) == pytest.approx(3 * np.log(2))


def test_padding_changes_nothing_whatever_the_logits_there() -> None:
    logits = make_logits(TEXT)
    wider = np.pad(TEXT, [[0, 0], [0, 3]])
    more = np.concatenate([logits, np.full((len(TEXT), 3, WORDS), 1e30, np.float32)], axis=1)
    before = next_word_log_probs(TEXT, logits).numpy()
    after = next_word_log_probs(wider, more).numpy()
    np.testing.assert_array_equal(after[:, : before.shape[1]], before)
    np.testing.assert_array_equal(after[:, before.shape[1] :], 0)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_few_rows_and_steps(rows: int, steps: int) -> None:
    text = TEXT[:rows, :steps]
    log_probs = next_word_log_probs(text, make_logits(text))
    np.testing.assert_allclose(log_probs, slow(text, make_logits(text))[0], rtol=1e-5, atol=1e-6)
    assert NextWordCrossEntropy().call(text, make_logits(text)).shape == (rows,)


def test_low_precision_logits_are_read_in_float32() -> None:
    logits = tf.cast(make_logits(TEXT), tf.bfloat16)
    log_probs = next_word_log_probs(TEXT, logits)
    assert log_probs.dtype == tf.float32
    np.testing.assert_allclose(log_probs, slow(TEXT, logits.numpy().astype(np.float64))[0], rtol=1e-5, atol=1e-6)


def test_config() -> None:
    check_config(NextWordCrossEntropy())
    check_config(NextWordCrossEntropy(reduction="sum"))
