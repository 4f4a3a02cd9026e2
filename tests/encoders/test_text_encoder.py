"""Word vectors: looked up, set from outside, dropped in training only."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_layer
from tests.raising import raises_argument
from vsemb.encoders import WordEmbedding
from vsemb.encoders.text_encoder import TextCorpus, padding_mask
from vsemb.text import Vocabulary

IDS = np.array([[2, 3, 4], [1, 0, 0]], np.int32)


@pytest.mark.parametrize(
    "arguments", [{}, {"word_dropout": 0.5, "dropout": 0.5, "init_scale": 0.3, "dense_gradient": True}]
)
def test_contract(arguments, tmp_path) -> None:
    check_layer(functools.partial(WordEmbedding, 6, 4, **arguments), [IDS], tmp_path, sequence=True)


def test_fixed_words_are_not_trained() -> None:
    layer = WordEmbedding(6, 4, train_words=False)
    layer(IDS)
    assert layer.trainable_variables == []
    assert not type(layer).from_config(layer.get_config()).train_words


def test_set_vectors_before_and_after_building() -> None:
    table = np.arange(24.0).reshape(6, 4)
    early, late = WordEmbedding(6, 4), WordEmbedding(6, 4)
    early.set_vectors(table)
    late(IDS)
    late.set_vectors(table)
    for layer in (early, late):
        assert layer(IDS)[0, 1].numpy().tolist() == [12, 13, 14, 15]


@pytest.mark.parametrize(("vectors", "argument"), [(np.zeros((6, 5)), "vectors"), (np.full((6, 4), np.nan), "vectors")])
def test_bad_vectors(vectors, argument: str) -> None:
    with raises_argument(argument):
        WordEmbedding(6, 4).set_vectors(vectors)


def test_word_dropout_hits_words_and_not_padding() -> None:
    keras.utils.set_random_seed(1)
    # One-dimensional vectors that are their own ids.
    layer = WordEmbedding(6, 1, word_dropout=0.3)
    layer.set_vectors(np.arange(6.0)[:, None])
    ids = np.tile(np.array([[5, 0]], np.int32), (4000, 1))
    seen = layer(ids, training=True).numpy()[:, :, 0]
    assert set(seen[:, 0]) == {1, 5}
    # 4000 draws of 0.3: standard deviation sqrt(0.21 / 4000) = 0.0072, so four of them.
    assert abs((seen[:, 0] == 1).mean() - 0.3) < 0.03
    assert not seen[:, 1].any()
    assert (layer(ids, training=False).numpy()[:, 0, 0] == 5).all()
    # Each call draws anew.
    assert (layer(ids, training=True).numpy()[:, :, 0] != seen).any()


@pytest.mark.parametrize("dense", [False, True])
def test_a_repeated_word_takes_one_step(dense: bool) -> None:
    layer = WordEmbedding(4, 1, dense_gradient=dense)
    layer.set_vectors(np.zeros((4, 1)))
    optimizer = keras.optimizers.RMSprop(0.1, rho=0.9)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(np.array([[2, 2, 2, 2, 3]]), training=True))
    optimizer.apply(tape.gradient(total, layer.trainable_variables), layer.trainable_variables)
    # The gradients are 4 and 1: 0.1 g / sqrt(0.1 g^2) = 0.316 for both. Of four gradients of 1 the squares
    # add up to 4 instead of 16, and the step is twice as long.
    expected = [0, 0, -0.3162 * (1 if dense else 2), -0.3162]
    np.testing.assert_allclose(layer.get_weights()[0][:, 0], expected, atol=1e-3)


def test_mixed_precision_casts_only_the_words_of_a_batch() -> None:
    layer = WordEmbedding(6, 4, dtype="mixed_bfloat16")
    layer.build((None, None))
    traced = tf.function(layer).get_concrete_function(tf.TensorSpec(IDS.shape, tf.int32))
    casts = [each.outputs[0].shape.as_list() for each in traced.graph.get_operations() if each.type == "Cast"]
    assert casts == [[2, 3, 4]]


def test_padding_mask() -> None:
    assert padding_mask(IDS).numpy().tolist() == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize(
    "arguments",
    [
        {"vocabulary_size": 1},
        {"vocabulary_size": 6, "word_dropout": 1.0},
        {"vocabulary_size": 6, "dropout": 1.5},
    ],
)
def test_bad_arguments(arguments) -> None:
    with pytest.raises(ValueError, match="must be|Expected"):
        WordEmbedding(**arguments)


def test_document_frequencies_count_a_word_once_a_text() -> None:
    # Texts: [2, 2, 3], [], [3].
    corpus = TextCorpus(Vocabulary(["a", "b", "c"]), np.array([2, 2, 3, 3]), np.array([0, 3, 3, 4]), True, 0)
    assert corpus.document_frequencies.tolist() == [0, 0, 1, 2, 0]
