"""Masked pooling by hand and against a loop over unpadded rows, forward and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb.encoders.pooling import masked_last, masked_max, masked_mean, masked_sum

POOLS = {"sum": masked_sum, "mean": masked_mean, "max": masked_max, "last": masked_last}

# Two dimensions; the third step is padding and holds values that would win every pooling.
STATES = np.array([[[1.0, -2.0], [3.0, -4.0], [9.0, 9.0]]], np.float32)
MASK = np.array([[True, True, False]])
BY_HAND = {"sum": [4, -6], "mean": [2, -3], "max": [3, -2], "last": [3, -4]}

SLOW = {
    "sum": lambda steps: steps.sum(0),
    "mean": lambda steps: steps.mean(0),
    "max": lambda steps: steps.max(0),
    "last": lambda steps: steps[-1],
}


@pytest.mark.parametrize("name", POOLS)
def test_by_hand(name: str) -> None:
    np.testing.assert_allclose(POOLS[name](STATES, MASK)[0], BY_HAND[name])


@pytest.mark.parametrize("name", POOLS)
def test_equals_a_loop_over_unpadded_rows(name: str) -> None:
    generator = np.random.default_rng(0)
    states = generator.normal(size=(6, 7, 3)).astype(np.float32)
    lengths = [1, 7, 3, 2, 5, 4]
    mask = np.arange(7) < np.array(lengths)[:, None]
    slow = np.stack([SLOW[name](row[:length]) for row, length in zip(states, lengths, strict=True)])
    np.testing.assert_allclose(POOLS[name](states, mask), slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", POOLS)
def test_padding_gets_no_gradient(name: str) -> None:
    states = tf.Variable(STATES)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(POOLS[name](states, MASK))
    gradient = tape.gradient(total, states).numpy()[0]
    assert not gradient[2].any()
    # d sum = 1 each; d mean = 1/2 each; max and last send 1 to one step of each dimension.
    expected = {"sum": [[1, 1], [1, 1]], "mean": [[0.5, 0.5]] * 2, "max": [[0, 1], [1, 0]]}
    expected["last"] = [[0, 0], [1, 1]]
    np.testing.assert_allclose(gradient[:2], expected[name])


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_without_steps_is_zero(name: str, dtype: str) -> None:
    states = tf.Variable(tf.cast(STATES, dtype))
    with tf.GradientTape() as tape:
        pooled = POOLS[name](states, np.zeros((1, 3), bool))
    assert pooled.dtype == states.dtype
    assert not tf.cast(pooled, tf.float32).numpy().any()
    assert not tf.cast(tape.gradient(pooled, states), tf.float32).numpy().any()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)], ids=["no rows", "no steps", "neither"])
@pytest.mark.parametrize("name", POOLS)
def test_nothing_to_pool(name: str, shape: tuple[int, int]) -> None:
    states = tf.zeros((*shape, 4))
    with tf.GradientTape() as tape:
        tape.watch(states)
        pooled = POOLS[name](states, np.zeros(shape, bool))
    assert pooled.shape == (shape[0], 4)
    assert not pooled.numpy().any()
    assert tape.gradient(pooled, states).shape == states.shape


def test_a_gap_in_the_mask_is_skipped() -> None:
    mask = np.array([[True, False, True]])
    np.testing.assert_allclose(masked_mean(STATES, mask)[0], [5, 3.5])
    np.testing.assert_allclose(masked_last(STATES, mask)[0], [9, 9])
