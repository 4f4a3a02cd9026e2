"""What models of the next word share, on the simplest there is: one word's probabilities, whatever comes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.encoders import WordEmbedding
from vsemb.models.replicated import l2_penalties
from vsemb.systems.captions.next_word import NextWordCrossEntropy, NextWordModel, frequency_bias, read_ids

WORDS = 4
TEXT = np.array([[2, 3], [3, 0]], np.int32)


class Unigram(NextWordModel):
    def build(self, input_shape: Any = None) -> None:
        self.scores = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="scores")
        self.matrix = self.add_weight(shape=(2, 3), initializer="ones", name="matrix")
        self.gate_bias = self.add_weight(shape=(2, 3), initializer="ones", name="gate_bias")

    def call(self, inputs: Any, training: bool = False) -> Any:
        shape = keras.ops.shape(read_ids(inputs["text"]))
        return keras.ops.broadcast_to(self.scores, (*shape, self.vocabulary_size))


def make_model(l2: float = 0.0) -> Unigram:
    model = Unigram(WORDS, l2=l2)
    model.build()
    model.compile(keras.optimizers.SGD(1.0), loss=NextWordCrossEntropy(), jit_compile=False)
    return model


def test_likelihoods_by_hand() -> None:
    model = make_model()
    model.scores.assign(np.log([0.5, 0.125, 0.125, 0.25]))
    expected = np.log(2) * np.array([[-3, -2, -1], [-2, -1, 0]])
    np.testing.assert_allclose(model.log_likelihoods({"text": TEXT}), expected, rtol=1e-6)


def test_a_step_of_training_by_hand() -> None:
    # Five targets (two of them ends) in two sentences, all of probability 1/4.
    model = make_model()
    history = model.fit(tf.data.Dataset.from_tensors({"text": TEXT}), verbose=0, shuffle=False)
    assert history.history["loss"][0] == pytest.approx(5 * np.log(4) / 2)
    np.testing.assert_allclose(model.scores, (np.array([2, 0, 1, 2]) - 5 / 4) / 2, rtol=1e-5)


def test_the_penalty_is_of_matrices_alone() -> None:
    plain, model = make_model(), make_model(l2=0.5)
    x = {"text": TEXT}
    difference = model.compute_loss(x, y_pred=model(x)) - plain.compute_loss(x, y_pred=plain(x))
    assert float(difference) == pytest.approx(0.5 * 0.5 * 6)
    words = keras.Sequential([WordEmbedding(5, 3), keras.layers.Dense(2)])
    words.build((None, None))
    assert len(l2_penalties(words, 1.0)) == 1
    assert l2_penalties(words, 0.0) == []


def test_frequencies() -> None:
    case = oracle("softmax_bias_init")
    counts = np.array(list(case.inputs["counts"].values()))
    np.testing.assert_allclose(frequency_bias(counts), list(case.expected["bias"].values()), **TOLERANCE)
    bias = frequency_bias(np.array([8, 0, 4]))
    np.testing.assert_allclose(bias, np.log([1, 1 / 16, 1 / 2]), rtol=1e-6)
    assert np.isfinite(frequency_bias(np.zeros(3))).all()


def test_errors() -> None:
    with raises_argument("vocabulary_size"):
        Unigram(1)
    with raises_argument("l2"):
        Unigram(4, l2=-1.0)
    with raises_argument("counts"):
        frequency_bias(np.array([1, -2]))
    model = make_model()
    model.compile("sgd", loss="mse")
    with raises_argument("loss"):
        model.compute_loss({"text": TEXT}, y_pred=model({"text": TEXT}))
    for call in (model.start, lambda x: model.step(x, TEXT), lambda x: NextWordModel.call(model, x)):
        with pytest.raises(NotImplementedError):
            call({})
