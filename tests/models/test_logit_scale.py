"""The learned temperature: its value, its bound, its way back from the bound."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_config
from vsemb.models import LogitScale


def test_by_hand() -> None:
    # CLIP starts at 1 / 0.07 = 14.2857.
    np.testing.assert_allclose(LogitScale()(np.array([1.0, -2.0], np.float32)), [14.2857, -28.5714], rtol=1e-5)


def test_bias_by_hand() -> None:
    layer = LogitScale(initial=10.0, bias=-10.0)
    np.testing.assert_allclose(layer(np.array([1.0, -2.0], np.float32)), [0.0, -30.0], atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1.0, -2.0])))
    # d/d log factor = factor * sum of scores = -10; d/d bias = 2.
    gradients = tape.gradient(loss, [layer.log_scale.value, layer.learned_bias.value])
    np.testing.assert_allclose(gradients, [-10.0, 2.0], rtol=1e-5)
    np.testing.assert_array_equal(layer.scaled(tf.constant(3.0), *layer.parameters()), layer(tf.constant(3.0)))


def test_contract(tmp_path) -> None:
    layer = LogitScale(initial=5.0, maximum=20.0, bias=-1.0)
    scores = np.array([[0.5, 1.0]], np.float32)
    expected = layer(scores).numpy()
    check_config(layer)
    symbol = keras.Input((2,))
    model = keras.Model(symbol, layer(symbol))
    model.save(tmp_path / "scale.keras")
    layer.log_scale.assign(0.0)
    np.testing.assert_allclose(keras.saving.load_model(tmp_path / "scale.keras")(scores), expected)
    # A temperature in bfloat16 would be off by 0.4 %.
    mixed = LogitScale(dtype="mixed_bfloat16")
    assert mixed(scores).dtype == tf.float32


def test_it_stops_at_the_maximum_and_comes_back() -> None:
    layer = LogitScale(initial=9.0, maximum=10.0)
    layer.build()
    optimizer = keras.optimizers.SGD(1.0)

    def step(sign: float) -> float:
        with tf.GradientTape() as tape:
            loss = sign * layer(tf.constant(1.0))
        optimizer.apply(tape.gradient(loss, [layer.log_scale.value]), [layer.log_scale])
        return float(layer(tf.constant(1.0)))

    # Gradient ascent moves the logarithm by 9, far over log 10; CLIP clips the parameter itself.
    np.testing.assert_allclose(step(-1), 10, rtol=1e-5)
    # Were only the factor clipped, its gradient would be 0 from here on and it could never fall.
    assert step(1) < 10


@pytest.mark.parametrize(
    "arguments",
    [{"initial": 0.0}, {"initial": -1.0}, {"maximum": 0.0}, {"initial": 200.0}, {"bias": float("nan")}],
)
def test_bad_arguments(arguments) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        LogitScale(**arguments)
