"""Convolutional sentence encoders: lengths, a slow reference, cutting and padding, the contract."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.contract import SAME, check_layer, check_padding
from tests.oracles import oracle
from tests.raising import raises_argument
from vsemb.encoders import WordEmbedding
from vsemb.systems.zero_shot.text_encoders import (
    CHARACTER_STAGES,
    WORD_STAGES,
    ConvolutionalSentenceEncoder,
    stage_lengths,
)

IDS = np.array([[2, 3, 4, 5, 2, 2, 3, 1, 4], [5, 0, 0, 0, 0, 0, 0, 0, 0], [4, 1, 2, 3, 0, 0, 0, 0, 0]], np.int32)
LENGTH = 9
# 9 -> 7 -> 3 (a step is left over) -> 2.
STAGES = ((4, 3, 3, 2), (5, 2, 1, 1))
RECURRENT = (None, "rnn", "gru", "lstm")


def make_encoder(dtype: str = "float32", **options) -> ConvolutionalSentenceEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    arguments = {"dim": 6, "length": LENGTH, "stages": STAGES, "units": 4, "hidden": 7, **options}
    return ConvolutionalSentenceEncoder(words, dtype=dtype, **arguments)


@pytest.mark.parametrize("recurrent", RECURRENT)
def test_contract(recurrent: str | None, tmp_path) -> None:
    keras.utils.set_random_seed(0)

    def make(dtype: str = "float32") -> ConvolutionalSentenceEncoder:
        return make_encoder(dtype, recurrent=recurrent, dropout=0.2)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)
    check_padding(make(), IDS[:, :6] * (IDS[:, 5:6] == 0))  # Shorter than `length`.


@pytest.mark.parametrize(("name", "stages"), [("char", CHARACTER_STAGES), ("word", WORD_STAGES)])
def test_lengths_of_the_paper(name: str, stages) -> None:
    entry = oracle("char_cnn_lengths")
    length, *operations = entry.inputs[name]
    assert stage_lengths(length, stages) == entry.expected[name]
    named = []
    for _, width, size, stride in stages:
        named += [f"conv{width}", *([f"pool{size}/{stride}"] if size > 1 else [])]
    assert named == operations


def test_lengths_are_those_of_the_layers() -> None:
    encoder = make_encoder()
    encoder(IDS)
    assert encoder.lengths == [9, 7, 3, 2]
    # 2 steps of 5 filters go into the hidden layer.
    assert encoder.summary.kernel.shape == (10, 7)


@pytest.mark.parametrize(
    "arguments",
    [
        {"length": 6},
        {"length": 2},
        {"stages": ((4, 3, 3),)},
        {"stages": ((4, 0, 1, 1),)},
        {"recurrent": "gruu"},
    ],
)
def test_bad_arguments(arguments) -> None:
    (name,) = arguments
    with raises_argument(name):
        make_encoder(**arguments)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def convolve(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """(steps, channels), (width, channels, filters) -> (steps - width + 1, filters), one step at a time."""
    width = len(kernel)
    return np.array([np.tensordot(x[t : t + width], kernel, 2) + bias for t in range(len(x) - width + 1)])


def pool(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    return np.array([x[t : t + size].max(0) for t in range(0, len(x) - size + 1, stride)])


@pytest.mark.parametrize("recurrent", [None, "rnn"])
def test_against_a_slow_reference(recurrent: str | None) -> None:
    keras.utils.set_random_seed(1)
    encoder = make_encoder(recurrent=recurrent)
    encoder(IDS)
    random = np.random.default_rng(0)
    encoder.set_weights([random.normal(size=w.shape) for w in encoder.get_weights()])
    table = encoder.words.get_weights()[0]
    (first, second), last = (c.get_weights() for c in encoder.convolutions), encoder.projection.get_weights()
    for ids, found in zip(IDS, encoder(IDS).numpy(), strict=True):
        x = np.array([table[i] if i else np.zeros(3) for i in ids])  # Padding is zeros, not its vector.
        x = pool(relu(convolve(x, *first)), 3, 2)
        x = relu(convolve(x, *second))
        if recurrent is None:
            kernel, bias = encoder.summary.get_weights()
            phi = relu(x.reshape(-1) @ kernel + bias)
        else:
            kernel, matrix = encoder.summary.get_weights()  # The last row of the kernel is the bias.
            state, states = np.zeros(4), []
            for step in x:
                state = relu(step @ kernel[:-1] + kernel[-1] + state @ matrix)
                states.append(state)
            phi = np.mean(states, axis=0)
        np.testing.assert_allclose(found, phi @ last[0] + last[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_tokens_beyond_the_length_are_cut(recurrent: str | None) -> None:
    encoder = make_encoder(recurrent=recurrent)
    longer = np.concatenate([IDS, np.full((3, 4), 3, np.int32)], axis=1)
    np.testing.assert_allclose(encoder(longer), encoder(IDS), **SAME)
    # The last step within the length counts.
    changed = IDS.copy()
    changed[0, -1] = 5
    assert (encoder(changed)[0].numpy() != encoder(IDS)[0].numpy()).any()


def test_the_relu_network_starts_as_a_sum_over_the_steps() -> None:
    encoder = make_encoder(recurrent="rnn")
    encoder.build((None, None))
    np.testing.assert_array_equal(encoder.summary.get_weights()[1], np.eye(4))


def test_stages_from_a_file_of_json() -> None:
    encoder = make_encoder(stages=[[4, 3, 3, 2], [5, 2, 1, 1]])
    assert encoder.get_config()["stages"] == [[4, 3, 3, 2], [5, 2, 1, 1]]


def test_dropout_acts_in_training_only() -> None:
    keras.utils.set_random_seed(0)
    encoder = make_encoder(dropout=0.5)
    still = encoder(IDS).numpy()
    np.testing.assert_array_equal(encoder(IDS).numpy(), still)
    assert (encoder(IDS, training=True).numpy() != still).any()
