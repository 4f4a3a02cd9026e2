"""The Transformer over words: a reference in NumPy, padding, dropout in chunks, what is refused."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import check_layer, check_padding
from tests.raising import raises_argument
from vsemb.encoders import TransformerSentenceEncoder, WordEmbedding
from vsemb.encoders.pooling import POOLINGS
from vsemb.models.dual_encoder import encode_in_chunks

IDS = np.array([[2, 3, 4, 5], [5, 0, 0, 0], [4, 1, 2, 0]], np.int32)


def make_encoder(dtype: str = "float32", words: int = 3, **options) -> TransformerSentenceEncoder:
    options = {"dim": 5, "length": 12, "units": 4, "layers": 2, "heads": 2, **options}
    return TransformerSentenceEncoder(WordEmbedding(6, words, dtype=dtype, init_scale=0.8), **options, dtype=dtype)


def normalized(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    gamma, beta = weights
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * gamma + beta


def slow_block(x: np.ndarray, block, pre_norm: bool) -> np.ndarray:
    """One block of one text without padding, (steps, units), in float64, a head and a word at a time."""

    def of(layer: keras.layers.Layer) -> list[np.ndarray]:
        return [np.asarray(w, np.float64) for w in layer.get_weights()]

    attention_norm, network_norm = (
        of(block._self_attention_layer_norm),
        of(block._feedforward_layer_norm),
    )
    query, query_bias, key, key_bias, value, value_bias, out, out_bias = of(block._self_attention_layer)
    read = normalized(x, attention_norm) if pre_norm else x
    attended = np.zeros_like(x)
    for head in range(query.shape[1]):
        queries = read @ query[:, head] + query_bias[head]
        keys, values = read @ key[:, head] + key_bias[head], read @ value[:, head] + value_bias[head]
        for step, each in enumerate(queries):
            weights = np.exp(keys @ each / math.sqrt(len(each)))
            attended[step] += (weights / weights.sum()) @ values @ out[head]
    x = x + attended + out_bias
    if not pre_norm:
        x = normalized(x, attention_norm)
    inner, inner_bias = of(block._feedforward_intermediate_dense)
    outer, outer_bias = of(block._feedforward_output_dense)
    hidden = (normalized(x, network_norm) if pre_norm else x) @ inner + inner_bias
    gelu = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    x = x + gelu @ outer + outer_bias
    return x if pre_norm else normalized(x, network_norm)


def slow_encoder(encoder: TransformerSentenceEncoder, ids: np.ndarray) -> np.ndarray:
    """The embedding of one text without padding, (dim,), in float64."""
    ids = ids[: encoder.length]
    x = np.asarray(encoder.words.table, np.float64)[ids]
    if encoder.widening is not None:
        kernel, bias = encoder.widening.get_weights()
        x = x @ kernel + bias
    x = x + encoder.places.get_weights()[0][: len(ids)]
    for block in encoder.blocks:
        x = slow_block(x, block, encoder.pre_norm)
    if encoder.normalization is not None:
        x = normalized(x, encoder.normalization.get_weights())
    pools = {"last": [x[-1]], "mean": [x.mean(0)], "max": [x.max(0)], "sum": [x.sum(0)]}
    pools["mean+max"] = [x.mean(0), x.max(0)]
    pooled = np.concatenate(pools[encoder.pooling])
    if encoder.projection is None:
        return pooled
    kernel, bias = encoder.projection.get_weights()
    return pooled @ kernel + bias


OPTIONS = [
    {},
    {"dropout": 0.3, "init_scale": 0.5, "pooling": "mean+max", "words": 4},
    {"pre_norm": False, "feed_forward": 6, "layers": 1, "pooling": "last", "dim": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["default", "dropout", "post-norm"])
def test_contract(options, tmp_path) -> None:
    keras.utils.set_random_seed(0)

    def make(dtype: str = "float32") -> TransformerSentenceEncoder:
        return make_encoder(dtype, **options)

    assert check_layer(make, [IDS], tmp_path, sequence=True).shape == (3, options.get("dim", 5))


@pytest.mark.parametrize(("pre_norm", "pooling"), [*((True, pooling) for pooling in POOLINGS), (False, "mean+max")])
def test_equals_the_reference(pre_norm: bool, pooling: str) -> None:
    encoder = make_encoder(pre_norm=pre_norm, pooling=pooling)
    encoder.build((None, None))
    generator = np.random.default_rng(0)
    encoder.set_weights([generator.uniform(-0.9, 0.9, w.shape) for w in encoder.get_weights()])
    embeddings = encoder(IDS).numpy()
    for row, ids in zip(embeddings, IDS, strict=True):
        # float32 against float64 over some hundred operations.
        np.testing.assert_allclose(row, slow_encoder(encoder, ids[ids != 0]), rtol=1e-4, atol=1e-5)


def test_longer_texts_are_cut() -> None:
    encoder = make_encoder(length=3)
    np.testing.assert_allclose(encoder(IDS), encoder(IDS[:, :3]), rtol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=["default", "dropout", "post-norm"])
def test_padding_changes_nothing(options) -> None:
    keras.utils.set_random_seed(3)
    encoder = make_encoder(**options)
    encoder.build((None, None))
    # Large vectors for padding and places would show.
    encoder.words.table.assign(np.vstack([np.full((1, encoder.words.dim), 50.0), encoder.words.table[1:]]))
    encoder.places.position_embeddings.assign(np.random.default_rng(0).normal(size=(12, 4)))
    check_padding(encoder, IDS)
    expected = encoder(IDS).numpy()
    for order in ([2, 0, 1], [0, 0, 2, 1, 1, 1, 0]):
        np.testing.assert_allclose(encoder(IDS[order]), expected[order], rtol=0, atol=1e-6)


def test_the_order_of_words_counts() -> None:
    keras.utils.set_random_seed(1)
    encoder = make_encoder(pooling="mean")
    first, second = encoder(np.array([[2, 3, 4], [4, 3, 2]])).numpy()
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_dropout_in_chunks_is_that_of_the_seeds(dtype: str) -> None:
    """Chunk by chunk, the gradient is that of the same chunks with the same masks, kept in memory."""
    ids = np.concatenate([IDS, IDS[::-1]])
    results = []
    for chunked in (True, False):
        keras.utils.set_random_seed(7)
        encoder = make_encoder(dtype, dropout=0.4, layers=1)
        encoder.build((None, None))

        def encode(rows, encoder=encoder):
            return tf.cast(encoder(rows, training=True), tf.float32)

        with tf.GradientTape() as tape:
            if chunked:
                embeddings = encode_in_chunks(encoder, encode, tf.constant(ids), 2)
            else:
                embeddings = tf.concat([encode(ids[k : k + 2]) for k in range(0, 6, 2)], axis=0)
            loss = tf.reduce_sum(embeddings**2)
        gradients = tape.gradient(loss, [v.value for v in encoder.trainable_variables])
        results.append([embeddings, *(tf.convert_to_tensor(each) for each in gradients)])
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 0.05, "atol": 0.05}
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
    assert np.abs(tf.cast(encoder(ids), tf.float32) - embeddings).max() > 0.01  # Dropout did act.


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"heads": 3}, "heads"),
        ({"layers": 0}, "layers"),
        ({"length": 0}, "length"),
        ({"feed_forward": -1}, "feed_forward"),
        ({"pooling": "first"}, "pooling"),
    ],
)
def test_refused(options, argument: str) -> None:
    with raises_argument(argument):
        make_encoder(**options)
