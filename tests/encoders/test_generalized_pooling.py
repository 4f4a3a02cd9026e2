"""The generalized pooling operator: against a loop, by hand, without padding, and as the pooling of an encoder."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_layer, check_padding
from vsemb.encoders import RecurrentSentenceEncoder, WordEmbedding
from vsemb.encoders.generalized_pooling import GeneralizedPooling

MASK = np.array([[True, True, True, True], [True, True, False, False], [True, False, False, False], [False] * 4])


def random_states(dim: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*MASK.shape, dim)).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gru(inputs: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Keras' GRU, `reset_after=True`, step by step: (steps, size) -> (steps, units)."""
    state, states = np.zeros(recurrent.shape[0]), []
    for x in inputs:
        of_x, of_state = np.split(x @ kernel + bias[0], 3), np.split(state @ recurrent + bias[1], 3)
        update, reset = sigmoid(of_x[0] + of_state[0]), sigmoid(of_x[1] + of_state[1])
        state = update * state + (1 - update) * np.tanh(of_x[2] + reset * of_state[2])
        states.append(state)
    return np.array(states)


def slow(layer: GeneralizedPooling, states: np.ndarray) -> np.ndarray:
    """Pools one row without padding, (steps, dim), with the equations of section 3.3."""
    if not len(states):
        return np.zeros(states.shape[1])
    codes = np.zeros((len(states), layer.positions))
    for place in range(1, len(states) + 1):
        for number in range(layer.positions):
            angle = place / 10000 ** (2 * (number // 2) / layer.positions)
            codes[place - 1, number] = np.sin(angle) if number % 2 == 0 else np.cos(angle)
    forward = gru(codes, *(weight.numpy() for weight in layer.decoder.forward_layer.cell.weights))
    backward = gru(codes[::-1], *(weight.numpy() for weight in layer.decoder.backward_layer.cell.weights))[::-1]
    scores = ((forward + backward) / 2 @ layer.score.kernel.numpy())[:, 0] / layer.temperature
    weights = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    return weights @ -np.sort(-states, axis=0)


def test_against_a_loop() -> None:
    keras.utils.set_random_seed(1)
    layer, states = GeneralizedPooling(positions=6, units=5, temperature=0.3), random_states()
    found = layer(states, MASK).numpy()
    for row, (own, mask) in enumerate(zip(states.astype(np.float64), MASK, strict=True)):
        np.testing.assert_allclose(found[row], slow(layer, own[mask]), atol=1e-5)


@pytest.mark.parametrize(("scores", "expected"), [([5.0, 0.0], 3.0), ([1.0, 1.0], 2.0), ([0.0, 5.0], 1.0)])
def test_maximum_mean_and_minimum_by_hand(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], expected: float
) -> None:
    layer = GeneralizedPooling()
    states, mask = np.array([[[1.0], [3.0], [9.0]]], np.float32), np.array([[True, True, False]])
    layer(states, mask)
    table = np.array([[*scores, 0.0]] * 3, np.float32)[..., None]
    monkeypatch.setattr(layer, "score", lambda hidden: tf.constant(table))
    # A difference of 5 at a temperature of 0.1 is a weight of 1.
    np.testing.assert_allclose(layer(states, mask), [[expected]], atol=1e-5)


def test_without_a_mask_all_steps_count() -> None:
    layer, states = GeneralizedPooling(), random_states()
    found = layer(states).numpy()
    # The same weights, in rows of a batch or alone.
    np.testing.assert_allclose(found, layer(states, np.ones_like(MASK)), atol=1e-6)
    np.testing.assert_allclose(found[0], slow(layer, states[0].astype(np.float64)), atol=1e-5)


def test_gradients_are_finite_and_reach_all_weights() -> None:
    layer, states = GeneralizedPooling(), tf.constant(random_states())
    with tf.GradientTape() as tape:
        tape.watch(states)
        value = tf.reduce_sum(layer(states, MASK) ** 2)
    found, *of_weights = tape.gradient(value, [states, *layer.trainable_weights])
    assert np.isfinite(found).all() and not found.numpy()[~MASK].any() and found.numpy()[MASK].any()
    assert len(of_weights) == 7 and all(np.abs(gradient).max() > 0 for gradient in of_weights)


def test_no_row_of_the_decoder_is_without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # cuDNN refuses such rows.
    layer, masks = GeneralizedPooling(), []
    layer(random_states(), MASK)
    decoder = layer.decoder
    monkeypatch.setattr(layer, "decoder", lambda codes, mask: masks.append(mask.numpy()) or decoder(codes, mask=mask))
    layer(random_states(), MASK)
    assert masks[0].shape == (4, 4) and masks[0][:, 0].all()


def test_contract(tmp_path) -> None:
    check_layer(lambda **options: GeneralizedPooling(8, 4, **options), [random_states(), MASK], tmp_path, sequence=True)


@pytest.mark.parametrize("directions", ["forward", "concat"])
def test_as_the_pooling_of_an_encoder(directions: str, tmp_path) -> None:
    def make(**options) -> RecurrentSentenceEncoder:
        words = WordEmbedding(vocabulary_size=10, dim=4)
        return RecurrentSentenceEncoder(
            words, dim=6, units=5, directions=directions, pooling="generalized", dropout=0.0, **options
        )

    ids = np.array([[2, 3, 4, 5], [7, 1, 0, 0], [9, 0, 0, 0]])
    check_layer(make, [ids], tmp_path, sequence=True)
    check_padding(make(), ids)
