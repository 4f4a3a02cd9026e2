"""Word vectors composed of the word and its n-grams: by hand and in NumPy, in every encoder, from outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer, check_padding
from tests.raising import raises_argument
from vsemb.encoders import (
    LinearSentenceEncoder,
    NGramEmbedding,
    RecurrentSentenceEncoder,
    SequenceAndBagEncoder,
    TransformerSentenceEncoder,
)
from vsemb.encoders.bag import BagOfWordsEncoder
from vsemb.encoders.ensemble import Ensemble
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.sequence_and_bag import SequenceAndBag
from vsemb.encoders.text_encoder import TextCorpus, TextSpec, WordVectors
from vsemb.text import Vocabulary
from vsemb.text.ngrams import NGrams, NGramTokenizer

# Tokens of an id and up to three n-grams: a known word, an unknown one, one without n-grams, and padding.
TOKENS = np.array(
    [
        [[2, 1, 5, 3], [1, 5, 0, 0], [1, 0, 0, 0], [4, 2, 2, 0]],
        [[3, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        [[1, 3, 0, 0], [5, 1, 0, 0], [2, 1, 5, 3], [0, 0, 0, 0]],
    ],
    np.int32,
)


def filled(layer: keras.layers.Layer, seed: int = 0) -> keras.layers.Layer:
    """Gives a layer random weights, since vectors of n-grams begin at zero."""
    generator = np.random.default_rng(seed)
    layer(TOKENS)
    layer.set_weights([generator.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def embedding(dtype: str = "float32", **options: Any) -> NGramEmbedding:
    return NGramEmbedding(6, 4, buckets=5, dtype=dtype, **options)


def composed(table: np.ndarray, grams: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The slow reference: one token at a time."""
    vectors = []
    for word, *numbers in tokens.reshape(-1, tokens.shape[-1]).tolist():
        vector = np.zeros(table.shape[1]) if word == 1 else table[word].astype(np.float64)
        present = [grams[number] for number in numbers if number]
        vectors.append(vector + (np.mean(present, axis=0) if present else 0))
    return np.reshape(vectors, (*tokens.shape[:-1], -1))


@pytest.mark.parametrize("arguments", [{}, {"word_dropout": 0.5, "dropout": 0.5, "dense_gradient": True}])
def test_contract(arguments: dict[str, Any], tmp_path: Any) -> None:
    check_layer(functools.partial(embedding, **arguments), [TOKENS], tmp_path, sequence=True)


def test_vectors_and_gradients_are_those_of_numpy() -> None:
    layer = filled(embedding())
    table, grams = layer.get_weights()
    np.testing.assert_allclose(layer(TOKENS), composed(table, grams, TOKENS), **SAME)
    upstream = np.random.default_rng(1).normal(size=(*TOKENS.shape[:2], 4)).astype(np.float32)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(TOKENS, training=True) * upstream)
    gradients = tape.gradient(total, [weight.value for weight in layer.trainable_variables])
    of_table, of_grams = (tf.convert_to_tensor(gradient).numpy() for gradient in gradients)
    expected_table, expected_grams = np.zeros((6, 4)), np.zeros((6, 4))
    for token, vector in zip(TOKENS.reshape(-1, 4), upstream.reshape(-1, 4), strict=True):
        if token[0] != 1:
            expected_table[token[0]] += vector
        present = token[1:][token[1:] > 0]
        for number in present:
            expected_grams[number] += vector / len(present)
    np.testing.assert_allclose(of_table, expected_table, **SAME)
    np.testing.assert_allclose(of_grams, expected_grams, **SAME)
    assert not of_grams[0].any()


def test_n_grams_begin_at_zero_and_an_unseen_word_without_them_stays_there() -> None:
    layer = embedding()
    vectors = layer(TOKENS).numpy()
    np.testing.assert_array_equal(vectors[0, 0], layer.get_weights()[0][2])
    assert not vectors[0, 1].any()
    assert not filled(layer)(TOKENS).numpy()[0, 2].any()


def test_dropped_words_keep_their_n_grams() -> None:
    layer = filled(embedding(word_dropout=0.5))
    tokens = np.tile(TOKENS[:1, :1], (200, 1, 1))
    seen = layer(tokens, training=True).numpy()[:, 0]
    whole, parts = layer(TOKENS[:1, :1]).numpy()[0, 0], layer(np.array([[[1, 1, 5, 3]]])).numpy()[0, 0]
    dropped = np.isclose(seen, parts, atol=1e-6).all(axis=1)
    assert np.isclose(seen[~dropped], whole, atol=1e-6).all() and 60 < dropped.sum() < 140


def encoders() -> dict[str, Callable[..., keras.layers.Layer]]:
    def words(dtype: str) -> NGramEmbedding:
        return embedding(dtype)

    def recurrent(dtype: str = "float32", **options: Any) -> keras.layers.Layer:
        return RecurrentSentenceEncoder(words(dtype), 4, units=3, **options, dtype=dtype)

    return {
        "linear": lambda dtype="float32": LinearSentenceEncoder(words(dtype), dtype=dtype),
        "bag": lambda dtype="float32": BagOfWordsEncoder(words(dtype), dtype=dtype),
        "gru": recurrent,
        "lstm": functools.partial(recurrent, cell="lstm", directions="concat", pooling="mean+max"),
        "peephole-lstm": functools.partial(recurrent, cell="peephole-lstm"),
        "transformer": lambda dtype="float32": TransformerSentenceEncoder(
            words(dtype), 4, length=8, units=4, layers=1, heads=2, dtype=dtype
        ),
        "sequence-and-bag": lambda dtype="float32": SequenceAndBagEncoder(
            recurrent(dtype), BagOfWordsEncoder(words(dtype), dtype=dtype), dtype=dtype
        ),
    }


@pytest.mark.parametrize("name", encoders())
def test_padding_changes_nothing(name: str) -> None:
    layer = filled(encoders()[name]())
    check_padding(layer, TOKENS)
    # Neither does the packed loop of inference, in a graph with tokens of any number.
    traced = tf.function(layer, input_signature=[tf.TensorSpec((None, None, 4), tf.int32)])
    np.testing.assert_allclose(traced(TOKENS), layer(TOKENS, training=False), **SAME)
    np.testing.assert_allclose(traced(TOKENS[:, :1]), layer(TOKENS[:, :1]), **SAME)


@pytest.mark.parametrize("name", ["sequence-and-bag", "transformer"])
def test_contract_of_encoders(name: str, tmp_path: Any) -> None:
    check_layer(encoders()[name], [TOKENS], tmp_path, sequence=True)


def test_inference_and_training_compute_the_same() -> None:
    for name in ("gru", "lstm", "sequence-and-bag"):
        layer = filled(encoders()[name]())
        np.testing.assert_allclose(layer(TOKENS, training=True), layer(TOKENS), **SAME)


def test_parts_of_recipes_build_the_embedding() -> None:
    part = Ensemble(SequenceAndBag(Recurrent(words=WordVectors(dim=4), units=3)), members=2)
    part.check_tokenizer(NGrams())
    layer = part.build(8, TextSpec(6, 8, buckets=5), "float32")
    assert layer(TOKENS).shape == (3, 8)
    for member in layer.members:
        for words in (member.words, member.bag.words):
            assert isinstance(words, NGramEmbedding) and words.buckets == 5


def test_the_weight_of_unseen_words_is_the_greatest() -> None:
    bag = BagOfWordsEncoder(embedding())
    for seen in (0, 5):
        bag.set_document_frequencies(np.array([0, seen, 4, 3, 2, 1]), 9)
        assert bag.rarity.numpy()[1:].argmax() == 0


def test_vectors_from_outside_are_kept_and_spread_over_n_grams() -> None:
    tokenizer = NGramTokenizer(Vocabulary(["skateboard", "skating", "dog", "dogs"]))
    corpus = TextCorpus(
        tokenizer.vocabulary, np.array([2]), np.array([0, 1]), True, 0, grams=tokenizer.grams_of_words()
    )
    vectors = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    layer = NGramEmbedding(6, 8, buckets=tokenizer.buckets)
    layer.set_vectors(vectors, corpus.grams)
    tokens = tokenizer(tf.constant(["skateboard skating dog dogs skateboards"])).numpy()[0]
    read = layer(tokens).numpy()
    np.testing.assert_allclose(read[:4], vectors[2:], rtol=1e-5, atol=1e-5)
    # An unseen word is nearest to the word that it is spelled like.
    nearest = (vectors[2:] @ read[4]) / np.linalg.norm(vectors[2:], axis=1)
    assert nearest.argmax() == 0
    # Without n-grams the words have vectors of their own only.
    layer.set_vectors(vectors)
    assert not layer(tokens).numpy()[4].any()
    np.testing.assert_allclose(layer(tokens).numpy()[:4], vectors[2:], rtol=1e-6)


def test_vectors_of_a_file_reach_unseen_words(tmp_path: Any) -> None:
    (tmp_path / "vectors.txt").write_text("dog 1 2\ncat 3 5\n")
    tokenizer = NGramTokenizer(Vocabulary(["dog", "cat"]))
    corpus = TextCorpus(
        tokenizer.vocabulary, np.array([2]), np.array([0, 1]), True, 0, None, tokenizer.grams_of_words()
    )
    words = WordVectors(dim=2, vectors=str(tmp_path / "vectors.txt"))
    layer = words.build(TextSpec(4, 8, buckets=tokenizer.buckets), "float32")
    words.initialize(layer, corpus)
    np.testing.assert_allclose(layer(tokenizer(["dog cats"]).numpy()).numpy()[0], [[1, 2], [3, 5]], rtol=1e-5)


def test_bad_arguments() -> None:
    with raises_argument("buckets"):
        NGramEmbedding(6, 4, buckets=0)
    with raises_argument("vectors"):
        embedding().set_vectors(np.zeros((6, 5)))
