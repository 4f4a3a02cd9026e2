"""Places of a map: their affine map and their positions, by hand, and what is refused."""

from __future__ import annotations

import keras
import numpy as np

from tests.contract import SAME
from tests.raising import raises_argument
from vsemb.systems.captions.multimodal_rnn import SpatialFeatureEncoder


def test_by_hand() -> None:
    encoder = SpatialFeatureEncoder(2, 2)
    encoder.build((None, 4))
    encoder.affine.kernel.assign([[1.0, 0.0], [0.0, 2.0]])
    encoder.position.assign([[0.5, 0.0], [0.0, -1.0]])
    encoded = encoder(np.array([[1.0, 2.0, -3.0, 4.0]], np.float32))
    assert encoded.numpy().tolist() == [[[1.5, 4.0], [0.0, 7.0]]]


def test_dropout_acts_in_training_alone_and_configs_come_back() -> None:
    keras.utils.set_random_seed(0)
    encoder, features = SpatialFeatureEncoder(2, 3, dropout=0.5), np.ones((4, 10), np.float32)
    plain = encoder(features)
    assert np.abs(encoder(features, training=True) - plain).max() > 1e-3
    again = SpatialFeatureEncoder.from_config(encoder.get_config())
    again.build((None, 10))
    again.set_weights(encoder.get_weights())
    np.testing.assert_allclose(again(features), plain, **SAME)
    assert encoder.compute_output_shape((None, 10)) == (None, 2, 3)


def test_refused() -> None:
    with raises_argument("cells"):
        SpatialFeatureEncoder(0, 3)
    with raises_argument("features"):
        SpatialFeatureEncoder(3, 2).build((None, 4))
