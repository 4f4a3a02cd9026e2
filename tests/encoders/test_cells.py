"""The peephole LSTM cell against the oracle, a NumPy recursion and its own contract."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config, check_layer
from tests.losses.slow import finite_differences
from tests.oracles import TOLERANCE, oracle
from vsemb.encoders.cells import PeepholeLSTMCell, ProjectedGRUCell, ProjectedLSTMCell, ReLUCell


def from_oracle(peepholes: bool = True) -> tuple[PeepholeLSTMCell, np.ndarray]:
    inputs = oracle("lstm_peephole").inputs
    x = np.array(inputs["x"], np.float32)
    cell = PeepholeLSTMCell(2)
    cell.build((1, 2))

    def side_by_side(names: list[str]) -> np.ndarray:
        return np.concatenate([np.array(inputs[name]) for name in names], axis=-1)

    cell.kernel.assign(side_by_side(["Wxi", "Wxf", "Wxc", "Wxo"]))
    cell.recurrent_kernel.assign(side_by_side(["Whi", "Whf", "Whc", "Who"]))
    cell.peephole_kernel.assign(side_by_side(["Wci", "Wcf", "Wco"]) * peepholes)
    cell.bias.assign(side_by_side(["bi", "bf", "bc", "bo"]))
    return cell, x


def slow_recursion(weights: list[np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 1-5, one number of the state at a time, in float64."""
    kernel, recurrent, peephole, bias = (np.asarray(w, np.float64) for w in weights)
    units = recurrent.shape[0]
    m, c = np.zeros(units), np.zeros(units)

    def sigmoid(z: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-z))

    hidden = []
    for step in x:
        parts = [slice(k * units, (k + 1) * units) for k in range(4)]
        z = [step @ kernel[:, part] + m @ recurrent[:, part] + bias[part] for part in parts]
        see = [peephole[:, part] for part in parts[:3]]
        gate_in, gate_forget = sigmoid(z[0] + c @ see[0]), sigmoid(z[1] + c @ see[1])
        c = gate_forget * c + gate_in * np.tanh(z[2])
        m = sigmoid(z[3] + c @ see[2]) * np.tanh(c)
        hidden.append(m)
    return np.array(hidden), c


def test_oracle() -> None:
    cell, x = from_oracle()
    expected = oracle("lstm_peephole").expected
    layer = keras.layers.RNN(cell, return_sequences=True, return_state=True)
    hidden, _, state = layer(x[None])
    np.testing.assert_allclose(hidden[0], expected["hidden"], **TOLERANCE)
    np.testing.assert_allclose(state[0], expected["cell_last"], **TOLERANCE)


def test_oracle_masked_steps_carry_the_state() -> None:
    cell, x = from_oracle()
    expected = oracle("lstm_peephole").expected
    layer = keras.layers.RNN(cell, return_sequences=True, return_state=True)
    hidden, _, state = layer(x[None], mask=np.array([[True, True, False]]))
    np.testing.assert_allclose(hidden[0], expected["hidden_mask_110"], **TOLERANCE)
    np.testing.assert_allclose(state[0], expected["cell_mask_110"], **TOLERANCE)


def test_oracle_without_peepholes_is_the_usual_lstm() -> None:
    cell, x = from_oracle(peepholes=False)
    hidden = keras.layers.RNN(cell, return_sequences=True)(x[None])
    expected = oracle("lstm_peephole").expected["hidden_without_peepholes"]
    np.testing.assert_allclose(hidden[0], expected, **TOLERANCE)
    # Keras' own LSTM stores its kernels in the same order i, f, c, o.
    usual = keras.layers.LSTM(2, return_sequences=True)
    usual.build((1, 3, 2))
    kernel, recurrent, _, bias = cell.get_weights()
    usual.set_weights([kernel, recurrent, bias])
    np.testing.assert_allclose(usual(x[None])[0], expected, **TOLERANCE)


@pytest.mark.parametrize("units", [1, 4])
def test_equals_recursion_forward_and_gradient(units: int) -> None:
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(5, 3))
    cell = PeepholeLSTMCell(units, keras.initializers.RandomUniform(-0.8, 0.8))
    layer = keras.layers.RNN(cell, return_sequences=True)
    np.testing.assert_allclose(
        layer(x[None].astype(np.float32))[0], slow_recursion(cell.get_weights(), x)[0], rtol=1e-4, atol=1e-6
    )
    weights = [np.asarray(w, np.float64) for w in cell.get_weights()]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(x[None].astype(np.float32)))
    gradients = tape.gradient(total, [v.value for v in cell.trainable_variables])
    for number, gradient in enumerate(gradients):

        def slow(values: np.ndarray, number: int = number) -> float:
            return slow_recursion([*weights[:number], values, *weights[number + 1 :]], x)[0].sum()

        # Central differences in float64 err by 1e-10; the analytic gradient is float32.
        np.testing.assert_allclose(gradient, finite_differences(slow, weights[number]), rtol=1e-3, atol=1e-5)


def test_forget_bias() -> None:
    for flag in (True, False):
        cell = PeepholeLSTMCell(3, unit_forget_bias=flag)
        cell.build((None, 2))
        assert cell.bias.numpy().tolist() == [0] * 3 + [float(flag)] * 3 + [0] * 6


def test_contract(tmp_path) -> None:
    check_config(PeepholeLSTMCell(3, keras.initializers.RandomUniform(-0.1, 0.1), unit_forget_bias=False))

    def make(dtype: str = "float32") -> keras.layers.Layer:
        # An RNN layer around it is how the cell is used; it is Keras' own, so its config is not ours.
        return _Wrapped(4, dtype=dtype)

    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    check_layer(make, [x], tmp_path, sequence=False)


@keras.saving.register_keras_serializable("vsemb-tests")
class _Wrapped(keras.layers.Layer):
    def __init__(self, units: int, **kwargs) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.rnn = keras.layers.RNN(PeepholeLSTMCell(units, dtype=self.dtype_policy), dtype=self.dtype_policy)

    def build(self, input_shape) -> None:
        self.rnn.build(input_shape)

    def call(self, x):
        return self.rnn(x)

    def compute_output_shape(self, input_shape):
        return input_shape[0], self.units

    def get_config(self):
        return {**super().get_config(), "units": self.units}


DIM, UNITS = 3, 4
CELLS = [(ProjectedGRUCell, keras.layers.GRU), (ProjectedLSTMCell, keras.layers.LSTM)]


@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_the_same_as_the_layer_of_keras(cell, layer) -> None:
    keras.utils.set_random_seed(0)
    theirs = layer(UNITS, return_sequences=True)
    theirs.build((None, None, DIM))
    theirs.cell.bias.assign(np.random.default_rng(1).normal(size=theirs.cell.bias.shape))
    inputs = tf.constant(np.random.default_rng(0).normal(size=(2, 5, DIM)), tf.float32)
    ours = keras.layers.RNN(cell(UNITS), return_sequences=True)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        expected = theirs(inputs)
        kernel, recurrent, bias = theirs.trainable_variables
        if not ours.built:
            ours.build((None, None, kernel.shape[1]))
            ours.set_weights([recurrent.numpy(), bias.numpy()])
        outputs = ours(tf.matmul(inputs, kernel))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tape.gradient(outputs, inputs), tape.gradient(expected, inputs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_config_and_first_weights(cell, layer) -> None:
    check_config(cell(UNITS))
    check_config(cell(UNITS, keras.initializers.RandomUniform(-0.1, 0.1)))
    built, theirs = cell(UNITS), layer(UNITS)
    built.build((None, cell.gates * UNITS))
    theirs.build((None, None, DIM))
    np.testing.assert_array_equal(built.bias, theirs.cell.bias)


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
