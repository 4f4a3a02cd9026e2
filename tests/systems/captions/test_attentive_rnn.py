"""Attention to the cells of an image: a slow reference, word by word, order of cells, learning, saving."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import BFLOAT16, SAME
from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, PixelEncoder, WordEmbedding
from vsemb.systems.captions.multimodal_rnn import AttentiveRNN, SpatialFeatureEncoder
from vsemb.systems.captions.next_word import NextWordCrossEntropy

WORDS, DIM, UNITS, HEADS, CELLS, CHANNELS = 7, 3, 4, 2, 3, 5


def make_model(cell: str = "rnn", dtype: str = "float32", **options: Any) -> AttentiveRNN:
    keras.utils.set_random_seed(1)
    encoder = SpatialFeatureEncoder(CELLS, UNITS, dtype=dtype)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0, dtype=dtype)
    model = AttentiveRNN(encoder, words, cell=cell, units=UNITS, heads=HEADS, **options)
    model.build({"image": (None, CELLS * CHANNELS), "text": (None, None)})
    generator = np.random.default_rng(2)
    for weight in model.weights:
        if "bias" in weight.name or weight.name == "position":
            weight.assign(generator.normal(size=weight.shape))
    return model


def make_inputs(rows: int = 3) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    text = generator.integers(1, WORDS, (rows, 4)).astype(np.int32)
    text[np.arange(4) >= (np.arange(rows) % 4 + 1)[:, None]] = 0
    return {"image": generator.normal(size=(rows, CELLS * CHANNELS)).astype(np.float32), "text": text}


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def slow(model: AttentiveRNN, inputs: dict[str, np.ndarray], image_steps: str) -> np.ndarray:
    """Log-probabilities (n, steps + 1, words), word by word and head by head, of the vanilla cell."""

    def of(variable: Any) -> np.ndarray:
        return keras.ops.convert_to_numpy(variable).astype(np.float64)

    encoder, attention, cell = model.image_encoder, model.attention, model.recurrent.cell
    rows = []
    for image, text in zip(inputs["image"], inputs["text"], strict=True):
        cells = image.reshape(CELLS, CHANNELS) @ of(encoder.affine.kernel) + of(encoder.position)
        cells = np.maximum(cells, 0)
        b_v = cells.mean(0) @ of(model.summary.kernel)
        h, outputs = np.zeros(UNITS), []
        for t, word in enumerate([0, *text], start=1):
            total = of(model.words.table)[word] @ of(model.projection.kernel)
            total = total + h @ of(cell.recurrent_kernel) + of(cell.bias)
            h = np.maximum(total + (b_v if t == 1 or image_steps == "all" else 0), 0)
            looked = of(attention.output_dense.bias)
            for head in range(HEADS):
                query, keys, values = (
                    states @ of(dense.kernel)[:, head] + of(dense.bias)[head]
                    for states, dense in (
                        (h, attention.query_dense),
                        (cells, attention.key_dense),
                        (cells, attention.value_dense),
                    )
                )
                weights = softmax(keys @ query / np.sqrt(UNITS // HEADS))
                looked = looked + weights @ values @ of(attention.output_dense.kernel)[head]
            said = np.tanh(np.concatenate([h, looked]) @ of(model.combination.kernel))
            outputs.append(np.log(softmax(said @ of(model.output_map.kernel) + of(model.output_bias))))
        rows.append(outputs)
    return np.array(rows)


@pytest.mark.parametrize("image_steps", ["first", "all"])
def test_the_slow_way(image_steps: str) -> None:
    model, inputs = make_model(image_steps=image_steps), make_inputs()
    expected = slow(model, inputs, image_steps)
    # Float32 keeps seven digits, and logarithms of small probabilities cost one or two.
    np.testing.assert_allclose(tf.nn.log_softmax(model(inputs)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("cell", "image_steps"), [("rnn", "all"), ("lstm", "first"), ("gru", "first"), ("gru", "all")])
def test_word_by_word_as_at_once(cell: str, image_steps: str) -> None:
    model, inputs = make_model(cell, image_steps=image_steps), make_inputs()
    expected = tf.nn.log_softmax(model(inputs)).numpy()
    state = model.start({"image": inputs["image"]})
    assert all(value.shape[0] == len(inputs["text"]) for value in state.values())
    words = np.zeros(len(inputs["text"]), np.int32)
    for place in range(expected.shape[1]):
        log_probs, after = model.step(state, words)
        np.testing.assert_allclose(log_probs, expected[:, place], atol=1e-6, rtol=1e-6)
        assert {name: value.shape for name, value in after.items()} == {
            name: value.shape for name, value in state.items()
        }
        state = after
        words = inputs["text"][:, min(place, inputs["text"].shape[1] - 1)]


def test_cells_in_another_order_with_their_positions() -> None:
    model, inputs = make_model("lstm"), make_inputs()
    expected = model(inputs)
    order = [2, 0, 1]
    image = inputs["image"].reshape(-1, CELLS, CHANNELS)[:, order].reshape(inputs["image"].shape)
    assert np.abs(model(inputs | {"image": image}) - expected).max() > 1e-3
    position = model.image_encoder.position
    position.assign(position.numpy()[order])
    np.testing.assert_allclose(model(inputs | {"image": image}), expected, **SAME)


def test_padding_changes_nothing() -> None:
    model, inputs = make_model("gru"), make_inputs()
    expected = model.log_likelihoods(inputs).numpy()
    wider = model.log_likelihoods(inputs | {"text": np.pad(inputs["text"], [[0, 0], [0, 2]])})
    np.testing.assert_allclose(wider, np.pad(expected, [[0, 0], [0, 2]]), **SAME)
    for rows in (0, 1):
        few = model.log_likelihoods({name: value[:rows] for name, value in inputs.items()})
        np.testing.assert_allclose(few, expected[:rows], **SAME)


def test_every_weight_is_trained() -> None:
    model, inputs = make_model("lstm"), make_inputs()
    model.compile(loss=NextWordCrossEntropy())
    with tf.GradientTape() as tape:
        loss = model.compute_loss(inputs, y_pred=model(inputs, training=True))
    for weight, gradient in zip(model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True):
        # A bias of all keys moves all scores of a softmax alike.
        if weight.path.endswith("attention/key/bias"):
            continue
        assert gradient is not None, weight.path
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 1e-7, weight.path


@pytest.mark.slow
def test_which_colour_has_which_shape() -> None:
    """Two things in two of three cells: "red" is followed by the red one's shape, whatever else is there."""
    keras.utils.set_random_seed(0)
    cases = [(cells, first, second) for cells in ((0, 1), (1, 2), (2, 0)) for first in range(2) for second in range(2)]
    images = np.zeros((len(cases), CELLS, 4), np.float32)
    text = []
    for row, ((red, blue), first, second) in enumerate(cases):
        images[row, red, [0, 2 + first]] = 1
        images[row, blue, [1, 2 + second]] = 1
        text.append([2, 4 + first, 3, 4 + second])  # red, its shape, blue, its shape
    data = {"image": images.reshape(len(cases), -1), "text": np.array(text, np.int32)}
    model = AttentiveRNN(SpatialFeatureEncoder(CELLS, 16), WordEmbedding(6, 8), cell="lstm", units=16, heads=2)
    model.compile(keras.optimizers.Adam(0.04), NextWordCrossEntropy(), jit_compile=False)
    history = model.fit(tf.data.Dataset.from_tensors(data).repeat(60), epochs=2, verbose=0)
    # Half of the words say something, and not to know would cost log 2 of each of the shapes: 1.4.
    assert history.history["loss"][1] < 0.1


def test_saved_and_loaded(tmp_path) -> None:
    model, inputs = make_model("lstm", dropout=0.2, init_scale=0.1, l2=0.1), make_inputs()
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, AttentiveRNN)
    np.testing.assert_allclose(loaded(inputs), expected, **SAME)


def test_low_precision() -> None:
    model, low, inputs = make_model("lstm"), make_model("lstm", dtype="mixed_bfloat16"), make_inputs()
    low.set_weights(model.get_weights())
    assert low(inputs).dtype == tf.float32
    np.testing.assert_allclose(low(inputs), model(inputs), **BFLOAT16)
    low.compile("sgd", NextWordCrossEntropy())
    assert np.isfinite(low.compute_loss(inputs, y_pred=low(inputs, training=True)))


def test_pixels() -> None:
    pixels = keras.Sequential([keras.Input((2, 2, 3)), keras.layers.Flatten()])
    encoder = PixelEncoder(pixels, SpatialFeatureEncoder(4, UNITS))
    model = AttentiveRNN(encoder, WordEmbedding(WORDS, DIM), units=UNITS, heads=1)
    model.build({"image": (None, 2, 2, 3), "text": (None, None)})
    inputs = {"image": np.ones((2, 2, 2, 3), np.float32), "text": make_inputs(2)["text"]}
    assert model(inputs).shape == (2, 5, WORDS)


def test_errors() -> None:
    words = WordEmbedding(WORDS, DIM)
    with raises_argument("image_encoder"):
        AttentiveRNN(ImageEncoder(16), words, units=4)
    with raises_argument("image_encoder"):
        AttentiveRNN(SpatialFeatureEncoder(1, 4), words, units=4)
    for heads in (0, 3):
        with raises_argument("heads"):
            AttentiveRNN(SpatialFeatureEncoder(2, 4), words, units=4, heads=heads)
