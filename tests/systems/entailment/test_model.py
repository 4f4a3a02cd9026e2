"""The entailment model: energies by hand, learning an order, saving."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME
from tests.raising import raises_argument
from vsemb.encoders import LinearSentenceEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.losses.max_margin import MaxMargin
from vsemb.systems.entailment.model import EntailmentModel

WORDS, DIM = 9, 4


def make_model(similarity: str = "order", dtype: str = "float32", **words) -> EntailmentModel:
    keras.utils.set_random_seed(0)
    table = WordEmbedding(WORDS, DIM, init_scale=1.0, dtype=dtype, **words)
    model = EntailmentModel(LinearSentenceEncoder(table, dtype=dtype), similarity)
    model.build()
    return model


def make_inputs(rows: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "premise": generator.integers(1, WORDS, (rows, 6)).astype(np.int32),
        "hypothesis": generator.integers(1, WORDS, (rows, 3)).astype(np.int32),
    }


def with_vectors(similarity: str, vectors: list[list[float]]) -> EntailmentModel:
    """A model whose sentences of the one word 2, 3, ... are these vectors, before they are normalized."""
    model = make_model(similarity)
    table = np.zeros((WORDS, DIM), np.float32)
    table[2 : 2 + len(vectors)] = vectors
    model.text_encoder.words.set_vectors(table)
    return model


def test_order_by_hand() -> None:
    # Unit vectors without sign: word 2 is (0.6, 0.8), word 3 (1, 0), word 4 (0.8, 0.6).
    model = with_vectors("order", [[3, -4, 0, 0], [-2, 0, 0, 0], [-8, 6, 0, 0]])
    pairs = {(2, 2): 0.0, (2, 3): 0.4**2, (3, 2): 0.8**2, (2, 4): 0.2**2, (4, 2): 0.2**2}
    premises, hypotheses = (np.array([[pair[side]] for pair in pairs]) for side in (0, 1))
    energies = model({"premise": premises, "hypothesis": hypotheses})
    np.testing.assert_allclose(energies, list(pairs.values()), atol=1e-6)
    # A sentence without words is at the origin, the top: every sentence entails it.
    nothing = np.zeros_like(premises)
    np.testing.assert_array_equal(model({"premise": premises, "hypothesis": nothing}), np.zeros(5))
    np.testing.assert_allclose(model({"premise": nothing, "hypothesis": premises}), np.ones(5), atol=1e-6)


def test_symmetric_by_hand() -> None:
    # Cosines: of (3, -4) and (-2, 0) -0.6, of (3, -4) and (8, 6) 0; with itself 1.
    model = with_vectors("cosine", [[3, -4, 0, 0], [-2, 0, 0, 0], [8, 6, 0, 0]])
    pairs = {(2, 2): 0.0, (2, 3): 1.6, (3, 2): 1.6, (2, 4): 1.0}
    premises, hypotheses = (np.array([[pair[side]] for pair in pairs]) for side in (0, 1))
    energies = model({"premise": premises, "hypothesis": hypotheses})
    np.testing.assert_allclose(energies, list(pairs.values()), atol=1e-6)


@pytest.mark.parametrize("similarity", ["order", "cosine"])
def test_embeddings_and_energies_agree(similarity: str) -> None:
    model, inputs = make_model(similarity), make_inputs(50)
    premises, hypotheses = (model.encode_texts(inputs[side]) for side in ("premise", "hypothesis"))
    np.testing.assert_allclose(np.linalg.norm(premises, axis=1), 1, atol=1e-6)
    assert (np.min(premises) >= 0) == (similarity == "order")
    energies = model(inputs)
    assert energies.shape == (50,) and energies.dtype == tf.float32
    np.testing.assert_allclose(model.energies(premises, hypotheses), energies, **SAME)
    assert np.min(energies) > -1e-6 and np.max(energies) <= (1 if similarity == "order" else 2) + 1e-6


def test_one_step_lowers_the_loss_of_equation_7() -> None:
    model, inputs = make_model(), make_inputs(8)
    labels = np.array([1, 0, 0, 1, 0, 1, 0, 0], np.int32)
    model.compile(keras.optimizers.SGD(0.05), loss=MaxMargin(margin=0.3))
    energies = model(inputs).numpy()
    # In float64, written out: E where true, max(0, 0.3 - E) where false, summed over the batch.
    expected = sum(e if label else max(0.0, 0.3 - e) for e, label in zip(energies, labels, strict=True))
    before = model.evaluate(inputs, labels, batch_size=8, verbose=0)
    np.testing.assert_allclose(before, expected, rtol=1e-5)
    model.fit(inputs, labels, batch_size=8, epochs=3, verbose=0)
    assert model.evaluate(inputs, labels, batch_size=8, verbose=0) < before


def test_order_learns_what_symmetric_cannot() -> None:
    """Each pair is also there the other way round with the other label: only a direction tells."""
    words = np.array([[2, 3], [4, 5], [6, 7], [8, 3]], np.int32)
    inputs = {
        "premise": np.concatenate([words[:, :1], words[:, 1:]]),
        "hypothesis": np.concatenate([words[:, 1:], words[:, :1]]),
    }
    labels = np.array([1, 1, 1, 1, 0, 0, 0, 0], np.int32)
    gaps = {}
    for similarity in ("order", "cosine"):
        model = make_model(similarity)
        model.compile(keras.optimizers.Adam(0.05), loss=MaxMargin(margin=0.3))
        model.fit(tf.data.Dataset.from_tensors((inputs, labels)).repeat(60), verbose=0)
        energies = model(inputs).numpy()
        gaps[similarity] = energies[4:].min() - energies[:4].max()
    assert gaps["order"] > 0.2
    assert gaps["cosine"] <= 1e-6


@pytest.mark.slow
def test_saved_and_reloaded(tmp_path) -> None:
    similarity, words = "cosine", WordEmbedding(WORDS, DIM)  # Which is not the default.
    model = EntailmentModel(RecurrentSentenceEncoder(words, DIM, units=6), similarity)
    inputs = make_inputs()
    expected = model(inputs).numpy()
    config = check_config_of(model)
    assert config["similarity"]["class_name"] == type(model.similarity).__name__
    model.compile("adam", loss=MaxMargin(0.2))
    model.fit(inputs, np.array([0, 1, 0, 1, 0]), verbose=0)
    expected = model(inputs).numpy()
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(reloaded, EntailmentModel) and reloaded.loss.margin == 0.2
    np.testing.assert_allclose(reloaded(inputs), expected, **SAME)
    model.save_weights(tmp_path / "model.weights.h5")
    other = EntailmentModel(RecurrentSentenceEncoder(WordEmbedding(WORDS, DIM), DIM, units=6), similarity)
    other.build()
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other(inputs), expected, **SAME)


def check_config_of(model: EntailmentModel) -> dict:
    config = model.get_config()
    rebuilt = EntailmentModel.from_config(config)
    assert rebuilt.get_config()["text_encoder"]["config"] == config["text_encoder"]["config"]
    return config


def test_both_sides_share_one_encoder_and_its_dropout() -> None:
    model, inputs = make_model(word_dropout=0.5), make_inputs(20)
    assert len(model.trainable_variables) == 1
    assert not np.array_equal(model(inputs, training=True), model(inputs))
    np.testing.assert_array_equal(model(inputs, training=False), model(inputs))


def test_mixed_precision_compares_in_float32() -> None:
    inputs = make_inputs(20)
    low = make_model(dtype="mixed_bfloat16")(inputs)
    assert low.dtype == tf.float32
    np.testing.assert_allclose(low, make_model()(inputs), atol=0.05)


def test_similarities_that_do_not_do() -> None:
    with raises_argument("similarity"):
        make_model("ordr")
