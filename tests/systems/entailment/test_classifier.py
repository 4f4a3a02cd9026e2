"""The classifier of pairs: its input by hand, a step, saving."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.contract import SAME
from tests.raising import raises_argument
from tests.systems.entailment.test_model import DIM, WORDS, make_inputs
from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
from vsemb.systems.entailment.classifier import PairClassifier


def make_model(dtype: str = "float32", **options) -> PairClassifier:
    keras.utils.set_random_seed(0)
    table = WordEmbedding(WORDS, DIM, init_scale=1.0, dtype=dtype)
    model = PairClassifier(LinearSentenceEncoder(table, dtype=dtype), **{"units": 5, **options})
    model.build()
    return model


def test_the_network_in_numpy() -> None:
    model, inputs = make_model(), make_inputs(7)
    # PReLU starts at 0 and would be a ReLU.
    model.set_weights([weight + 0.1 for weight in model.get_weights()])
    u, v = (np.asarray(model.text_encoder(inputs[side]), np.float64) for side in ("premise", "hypothesis"))
    x = np.concatenate([u, v, np.abs(u - v)], axis=1)
    weights = [np.asarray(weight, np.float64) for weight in model.network.get_weights()]
    for kernel, bias, slope in (weights[:3], weights[3:6]):
        x = x @ kernel + bias
        x = np.where(x > 0, x, slope * x)
    outputs = model(inputs)
    assert outputs.shape == (7, 3)
    np.testing.assert_allclose(outputs, x @ weights[6] + weights[7], rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_training_only() -> None:
    model, inputs = make_model(), make_inputs(20)
    assert not np.array_equal(model(inputs, training=True), model(inputs))
    np.testing.assert_array_equal(model(inputs, training=False), model(inputs))


def test_mixed_precision() -> None:
    outputs = make_model("mixed_bfloat16")(make_inputs())
    assert keras.backend.standardize_dtype(outputs.dtype) == "float32"
    np.testing.assert_allclose(outputs, make_model()(make_inputs()), atol=0.1)


def test_saved_and_reloaded(tmp_path: Path) -> None:
    model, inputs = make_model(depth=1, dropout=0.2), make_inputs()
    model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(inputs, np.array([0, 1, 2, 1, 0]), verbose=0)
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (reloaded.units, reloaded.depth, reloaded.dropout) == (5, 1, 0.2)
    np.testing.assert_allclose(reloaded(inputs), model(inputs), **SAME)


@pytest.mark.parametrize("options", [{"units": 0}, {"depth": 0}, {"dropout": 1.0}])
def test_arguments_out_of_range(options: dict) -> None:
    (name,) = options
    with raises_argument(name):
        make_model(**options)
