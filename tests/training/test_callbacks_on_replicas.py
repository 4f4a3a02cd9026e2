"""Callbacks read the counters of a model on two devices, whose variables are of another class."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

from tests.models.test_dual_encoder import make_batch, make_model
from vsemb.losses import InfoNCE
from vsemb.losses.ranking import PairwiseRanking
from vsemb.training.callbacks import CollapseWarning, averaged_weights
from vsemb.training.nonfinite import skip_nonfinite
from vsemb.training.optimizers import Adam


def test_steps_are_counted(two_devices: tf.distribute.Strategy) -> None:
    with two_devices.scope():
        network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        network.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse")
    network.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=4, epochs=2, verbose=0)
    # Keras puts the averages in place of the weights when `fit` ends.
    (average,) = network.get_weights()
    network.set_weights([average + 1])
    with averaged_weights(network):
        np.testing.assert_array_equal(network.get_weights()[0], average)
    np.testing.assert_array_equal(network.get_weights()[0], average + 1)

    loss = PairwiseRanking(0.2)
    model = SimpleNamespace(loss=loss, optimizer=network.optimizer, image_weight=1.0, text_weight=1.0)
    warning = CollapseWarning(8)
    warning.set_model(model)
    for steps, late in ((99, False), (100, True)):
        network.optimizer.iterations.assign(steps)
        warning.on_epoch_end(0, {"loss": loss.collapsed_value(8, 8)})
        assert warning.collapsed == late


def test_all_replicas_skip(two_devices: tf.distribute.Strategy) -> None:
    good, bad = make_batch(range(4)), make_batch(range(4))
    bad["image"][2, 3] = np.nan
    with two_devices.scope():
        model = make_model()
        model.compile(Adam(global_clipnorm=1.0).build(1, 1), InfoNCE())
        skip_nonfinite(model)
    model.fit(good, batch_size=4, verbose=0)
    before = model.get_weights()
    model.fit(bad, batch_size=4, verbose=0)
    for here, there in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(here, there)
    model.fit(good, batch_size=4, verbose=0)
    assert not np.array_equal(model.get_weights()[0], before[0])
