"""The rectified recurrence: by hand, its contract, and where it starts."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.contract import check_config
from vsemb.encoders import ReLUCell


def states_of(cell: ReLUCell, inputs: np.ndarray) -> np.ndarray:
    return keras.layers.RNN(cell, return_sequences=True)(inputs.astype(np.float32)).numpy()


def test_by_hand() -> None:
    cell = ReLUCell(2)
    cell.build((None, 2))
    cell.set_weights([np.array([[0.5, 1.0], [-1.0, 0.0]]), np.array([0.1, -0.2])])
    # (1, 0) + b = (1.1, -0.2 -> 0); then (0.55, 1.1) + (0, 1) + b = (0.65, 1.9);
    # then (0.325 - 1.9, 0.65) + (1, 0) + b = (-0.475 -> 0, 0.45).
    expected = [[1.1, 0], [0.65, 1.9], [0, 0.45]]
    np.testing.assert_allclose(states_of(cell, np.array([[[1, 0], [0, 1], [1, 0]]]))[0], expected, rtol=1e-6)


def test_config() -> None:
    check_config(ReLUCell(3))
    check_config(ReLUCell(3, keras.initializers.RandomUniform(-0.1, 0.1)))


@pytest.mark.parametrize("seed", [0, 1])
def test_states_of_long_sentences_stay_small_and_apart(seed: int) -> None:
    # What the docstring says of inputs that are ReLUs themselves.
    keras.utils.set_random_seed(seed)
    inputs = np.maximum(np.random.default_rng(seed).normal(size=(1, 60, 256)), 0)
    length = np.linalg.norm(inputs, axis=-1).mean()

    def longest_and_likeness(initializer: str | None) -> tuple[float, float]:
        states = states_of(ReLUCell(256, initializer), inputs)[0]
        unit = states / np.linalg.norm(states, axis=1, keepdims=True)
        return np.linalg.norm(states, axis=1).max() / length, float(unit[-1] @ unit[-2])

    longest, likeness = longest_and_likeness(None)
    assert longest < 2
    assert likeness < 0.7
    longest, likeness = longest_and_likeness("identity")
    assert longest > 30
    assert likeness > 0.99
