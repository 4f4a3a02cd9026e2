"""The indicator bag of words: the same numbers and gradients as an explicit indicator matrix."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from tests.contract import SAME, check_layer, check_padding
from vsemb.systems.zero_shot.text_encoders import BinaryBagOfWords

IDS = np.array([[2, 3, 3, 2], [5, 0, 0, 0], [4, 1, 1, 4], [1, 0, 0, 0]], np.int32)
# Ids 0 (padding) and 1 (unknown) are no words.
INDICATOR = np.array([[0, 0, 1, 1, 0, 0], [0] * 5 + [1], [0, 0, 0, 0, 1, 0], [0] * 6], np.float32)


def make_encoder(dtype: str = "float32") -> BinaryBagOfWords:
    return BinaryBagOfWords(6, 4, dtype=dtype)


def test_contract(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    check_layer(make_encoder, [IDS], tmp_path, sequence=True)
    check_padding(make_encoder(), IDS)


def test_forward_and_gradient_are_those_of_the_indicator() -> None:
    keras.utils.set_random_seed(0)
    encoder = make_encoder()
    encoder(IDS)
    random = np.random.default_rng(1)
    table, bias = (tf.Variable(random.normal(size=size).astype(np.float32)) for size in ((6, 4), (4,)))
    encoder.words.set_vectors(table.numpy())
    encoder.bias.assign(bias.numpy())
    with tf.GradientTape(persistent=True) as tape:
        vectors = encoder(IDS, training=True)
        wanted = tf.matmul(INDICATOR, table) + bias
        totals = [tf.reduce_sum(phi**3) for phi in (vectors, wanted)]
    np.testing.assert_allclose(vectors, wanted, **SAME)
    sides = [encoder.words.table.value, encoder.bias.value], [table, bias]
    gradients = [tape.gradient(*pair) for pair in zip(totals, sides, strict=True)]
    for ours, reference in zip(*gradients, strict=True):
        assert isinstance(ours, tf.Tensor)  # As that of a dense layer, and no list of rows.
        np.testing.assert_allclose(ours, reference, rtol=1e-4, atol=1e-5)


def test_many_random_texts() -> None:
    ids = np.random.default_rng(0).integers(0, 40, (64, 30)).astype(np.int32)
    encoder = BinaryBagOfWords(40, 3)
    encoder(ids)
    indicator = np.zeros((64, 40), np.float32)
    np.put_along_axis(indicator, ids.astype(int), 1, axis=1)
    indicator[:, :2] = 0
    table = encoder.words.get_weights()[0]
    np.testing.assert_allclose(encoder(ids), indicator @ table, **SAME)


def test_it_starts_as_a_dense_layer_does() -> None:
    table = BinaryBagOfWords(500, 100)
    table.build((None, None))
    # Glorot: the square root of 6 / (500 + 100) is 0.1.
    largest = np.abs(table.words.get_weights()[0]).max()
    assert 0.099 < largest <= 0.1
