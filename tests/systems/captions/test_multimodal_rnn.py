"""The multimodal network: equations 13 to 15 by a slow loop, word by word, learning, saving."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import BFLOAT16, SAME
from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, PixelEncoder, WordEmbedding
from vsemb.systems.captions.multimodal_rnn import GATES, MultimodalRNN
from vsemb.systems.captions.next_word import NextWordCrossEntropy

WORDS, DIM, UNITS, FEATURES = 7, 3, 4, 5
CASES = [(cell, steps) for cell in GATES for steps in ("first", "all")]


def make_model(cell: str = "rnn", image_steps: str = "first", dtype: str = "float32", **options: Any) -> MultimodalRNN:
    keras.utils.set_random_seed(1)
    encoder = ImageEncoder(GATES[cell] * UNITS, use_bias=False, dtype=dtype)
    words = WordEmbedding(WORDS, DIM, init_scale=1.0, dtype=dtype)
    model = MultimodalRNN(encoder, words, cell=cell, units=UNITS, image_steps=image_steps, **options)
    model.build({"image": (None, FEATURES), "text": (None, None)})
    generator = np.random.default_rng(2)
    for weight in model.weights:
        if "bias" in weight.name:
            weight.assign(generator.normal(size=weight.shape))
    return model


def make_inputs(rows: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    text = generator.integers(1, WORDS, (rows, 4)).astype(np.int32)
    text[np.arange(4) >= (np.arange(rows) % 4 + 1)[:, None]] = 0
    return {"image": generator.normal(size=(rows, FEATURES)).astype(np.float32), "text": text}


def parts(model: MultimodalRNN) -> dict[str, Any]:
    """The paper's names of the weights; ours are the transposed matrices."""
    return {
        "W_hi": model.image_encoder.affine.kernel,
        "x": model.words.table,
        "W_hx": model.projection.kernel,
        "W_hh": model.recurrent.cell.recurrent_kernel,
        "b_h": model.recurrent.cell.bias,
        "W_oh": model.output_map.kernel,
        "b_o": model.output_bias,
    }


def slow(weights: dict[str, np.ndarray], inputs: dict[str, np.ndarray], image_steps: str) -> np.ndarray:
    """Log-probabilities (n, steps + 1, words) by equations 13 to 15, sentence by sentence."""
    rows = []
    for image, text in zip(inputs["image"], inputs["text"], strict=True):
        b_v = weights["W_hi"].T @ image  # (13)
        h, outputs = np.zeros(UNITS), []
        for t, word in enumerate([0, *text], start=1):
            total = weights["W_hx"].T @ weights["x"][word] + weights["W_hh"].T @ h + weights["b_h"]
            h = np.maximum(total + (b_v if t == 1 or image_steps == "all" else 0), 0)  # (14)
            scores = weights["W_oh"].T @ h + weights["b_o"]
            outputs.append(scores - np.log(np.exp(scores).sum()))  # (15)
        rows.append(outputs)
    return np.array(rows)


def slow_loss(weights: dict[str, np.ndarray], inputs: dict[str, np.ndarray], image_steps: str) -> float:
    """Mean over sentences of -log p of their words and their ends."""
    total = 0.0
    for row, log_probs in enumerate(slow(weights, inputs, image_steps)):
        sentence = [int(word) for word in inputs["text"][row] if word]
        total -= sum(log_probs[place][target] for place, target in enumerate([*sentence, 0]))
    return total / len(inputs["text"])


def float64(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: keras.ops.convert_to_numpy(value).astype(np.float64) for name, value in variables.items()}


@pytest.mark.parametrize("image_steps", ["first", "all"])
def test_equations_13_to_15_and_their_gradient(image_steps: str) -> None:
    model, inputs = make_model("rnn", image_steps), make_inputs()
    weights = float64(parts(model))
    log_probs = tf.nn.log_softmax(model(inputs))
    np.testing.assert_allclose(log_probs, slow(weights, inputs, image_steps), rtol=1e-5, atol=1e-5)
    model.compile(loss=NextWordCrossEntropy())
    with tf.GradientTape() as tape:
        loss = model.compute_loss(inputs, y_pred=model(inputs, training=True))
    np.testing.assert_allclose(float(loss), slow_loss(weights, inputs, image_steps), rtol=1e-5)
    gradients = tape.gradient(loss, [variable.value for variable in parts(model).values()])
    step = 1e-6
    for (name, values), gradient in zip(weights.items(), gradients, strict=True):
        expected = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            kept, sides = values[place], []
            for moved in (kept + step, kept - step):
                values[place] = moved
                sides.append(slow_loss(weights, inputs, image_steps))
            values[place] = kept
            expected[place] = (sides[0] - sides[1]) / (2 * step)
        # Central differences of float64 keep about eight digits, float32 five.
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("cell", "image_steps"), CASES)
def test_word_by_word_as_at_once(cell: str, image_steps: str) -> None:
    model, inputs = make_model(cell, image_steps), make_inputs()
    expected = tf.nn.log_softmax(model(inputs)).numpy()
    state = model.start({"image": inputs["image"]})
    words = np.zeros(len(inputs["text"]), np.int32)
    for place in range(expected.shape[1]):
        log_probs, after = model.step(state, words)
        assert log_probs.dtype == tf.float32
        np.testing.assert_allclose(log_probs, expected[:, place], atol=1e-6, rtol=1e-6)
        assert {name: value.shape for name, value in after.items()} == {
            name: value.shape for name, value in state.items()
        }
        state = after
        words = inputs["text"][:, min(place, inputs["text"].shape[1] - 1)]


@pytest.mark.parametrize("cell", GATES)
def test_the_image_counts_at_the_first_step_alone_or_at_all(cell: str) -> None:
    inputs = make_inputs()
    other = inputs | {"image": inputs["image"] + 1}
    for image_steps in ("first", "all"):
        model = make_model(cell, image_steps)
        # Without memory a step sees what is added there alone.
        model.recurrent.cell.recurrent_kernel.assign(np.zeros(model.recurrent.cell.recurrent_kernel.shape))
        if cell == "lstm":
            # The forget gate keeps nothing.
            bias = model.recurrent.cell.bias.numpy()
            bias[UNITS : 2 * UNITS] = -100
            model.recurrent.cell.bias.assign(bias)
        if cell == "gru":
            bias = model.recurrent.cell.bias.numpy()
            bias[:, :UNITS] = -100
            model.recurrent.cell.bias.assign(bias)
        moved = np.abs(model(inputs).numpy() - model(other).numpy()).max((0, 2)) > 1e-5
        assert moved.tolist() == [True, *[image_steps == "all"] * 4]


@pytest.mark.parametrize("cell", GATES)
def test_padding_order_and_few_rows(cell: str) -> None:
    model, inputs = make_model(cell), make_inputs()
    expected = model.log_likelihoods(inputs).numpy()
    assert expected.dtype == np.float32
    assert (expected[0, 2:] == 0).all()
    wider = model.log_likelihoods(inputs | {"text": np.pad(inputs["text"], [[0, 0], [0, 2]])})
    np.testing.assert_allclose(wider, np.pad(expected, [[0, 0], [0, 2]]), **SAME)
    turned = model.log_likelihoods({name: value[::-1] for name, value in inputs.items()})
    np.testing.assert_allclose(turned, expected[::-1], **SAME)
    for rows in (0, 1):
        few = model.log_likelihoods({name: value[:rows] for name, value in inputs.items()})
        np.testing.assert_allclose(few, expected[:rows], **SAME)


def test_a_sentence_s_probabilities_are_those_of_all_sentences() -> None:
    # Of at most two words: p(END) + sum p(a, END) + sum p(a, b) over all words is 1.
    model = make_model("gru")
    texts = [
        (),
        *((a,) for a in range(1, WORDS)),
        *((a, b) for a in range(1, WORDS) for b in range(1, WORDS)),
    ]
    padded = np.array([[*text, *[0] * (2 - len(text))] for text in texts], np.int32)
    image = np.repeat(make_inputs(1)["image"], len(texts), axis=0)
    log_probs = model.log_likelihoods({"image": image, "text": padded}).numpy().astype(np.float64)
    lengths = np.array([len(text) for text in texts])
    total = np.exp(log_probs[lengths < 2].sum(1)).sum() + np.exp(log_probs[lengths == 2, :2].sum(1)).sum()
    assert total == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("cell", GATES)
def test_it_learns_what_images_say(cell: str) -> None:
    keras.utils.set_random_seed(0)
    encoder = ImageEncoder(GATES[cell] * 16, use_bias=False)
    words = WordEmbedding(5, 8, dense_gradient=True)
    model = MultimodalRNN(encoder, words, cell=cell, units=16)
    model.compile(keras.optimizers.RMSprop(0.01, clipvalue=5.0), NextWordCrossEntropy(), jit_compile=False)
    data = {
        "image": np.eye(3, dtype=np.float32),
        "text": np.array([[2, 3, 4], [4, 2, 0], [3, 0, 0]], np.int32),
    }
    history = model.fit(tf.data.Dataset.from_tensors(data).repeat(60), epochs=2, verbose=0)
    assert history.history["loss"][1] < 0.1 < history.history["loss"][0]
    state, written = model.start({"image": data["image"]}), []
    choice = np.zeros(3, np.int32)
    for _ in range(3):
        log_probs, state = model.step(state, choice)
        choice = np.argmax(log_probs, axis=1).astype(np.int32)
        written.append(choice)
    assert [row[: list(row).index(0)] if 0 in row else row for row in np.transpose(written).tolist()] == [
        [2, 3, 4],
        [4, 2],
        [3],
    ]


def test_frequencies_are_the_first_prediction() -> None:
    model = make_model("lstm")
    model.output_map.kernel.assign(np.zeros((UNITS, WORDS)))
    model.set_frequencies(np.array([10, 5, 20, 6, 4, 3, 2]))
    predicted = np.exp(tf.nn.log_softmax(model(make_inputs()))[0, 0])
    np.testing.assert_allclose(predicted, np.array([10, 5, 20, 6, 4, 3, 2]) / 50, rtol=1e-5)
    with raises_argument("counts"):
        model.set_frequencies(np.ones(6))


def test_dropout_stays_out_of_what_is_measured() -> None:
    plain, model, inputs = make_model("gru"), make_model("gru", dropout=0.5), make_inputs()
    model.set_weights(plain.get_weights())
    np.testing.assert_allclose(model(inputs), plain(inputs), **SAME)
    assert np.abs(model(inputs, training=True) - plain(inputs)).max() > 0.01


@pytest.mark.parametrize(("cell", "image_steps"), [("rnn", "all"), ("lstm", "first"), ("gru", "first")])
def test_saved_and_loaded(cell: str, image_steps: str, tmp_path) -> None:
    model, inputs = make_model(cell, image_steps, dropout=0.2, init_scale=0.1, l2=0.1), make_inputs()
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), expected, **SAME)
    model.save_weights(tmp_path / "model.weights.h5")
    again = make_model(cell, image_steps)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(again(inputs), expected, **SAME)


def test_low_precision() -> None:
    for cell in GATES:
        model, low, inputs = make_model(cell), make_model(cell, dtype="mixed_bfloat16"), make_inputs()
        low.set_weights(model.get_weights())
        assert low(inputs).dtype == tf.float32
        np.testing.assert_allclose(low(inputs), model(inputs), **BFLOAT16)
        assert low.log_likelihoods(inputs).dtype == tf.float32
    low.compile("sgd", NextWordCrossEntropy(), jit_compile=False)
    assert np.isfinite(low.train_on_batch(inputs))


def test_pixels() -> None:
    pixels = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.GlobalAveragePooling2D()])
    encoder = PixelEncoder(pixels, ImageEncoder(4 * UNITS, use_bias=False))
    model = MultimodalRNN(encoder, WordEmbedding(WORDS, DIM), cell="lstm", units=UNITS)
    model.build({"image": (None, 4, 4, 3), "text": (None, None)})
    inputs = {"image": np.ones((2, 4, 4, 3), np.float32), "text": make_inputs(2)["text"]}
    assert model(inputs).shape == (2, 5, WORDS)


def test_errors() -> None:
    words = WordEmbedding(WORDS, DIM)
    with raises_argument("image_encoder"):
        MultimodalRNN(ImageEncoder(8), words, cell="lstm", units=4)
    with raises_argument("cell"):
        MultimodalRNN(ImageEncoder(8), words, cell="lsmt", units=4)
    with raises_argument("image_steps"):
        MultimodalRNN(ImageEncoder(16), words, units=4, image_steps="last")
    with raises_argument("units"):
        MultimodalRNN(ImageEncoder(4), words, units=0)


def test_config() -> None:
    config = make_model("gru").get_config()
    assert set(config) >= {"image_encoder", "words", "cell", "units", "image_steps", "dropout", "init_scale"}
    assert "vocabulary_size" not in config
