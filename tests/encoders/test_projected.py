"""The cells behind their input matrix against Keras' own layers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from vsemb.encoders import ProjectedGRUCell, ProjectedLSTMCell

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
        found = ours(tf.matmul(inputs, kernel))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tape.gradient(found, inputs), tape.gradient(expected, inputs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_config_and_first_weights(cell, layer) -> None:
    check_config(cell(UNITS))
    check_config(cell(UNITS, keras.initializers.RandomUniform(-0.1, 0.1)))
    built, theirs = cell(UNITS), layer(UNITS)
    built.build((None, cell.gates * UNITS))
    theirs.build((None, None, DIM))
    np.testing.assert_array_equal(built.bias, theirs.cell.bias)
