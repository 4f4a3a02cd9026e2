"""Recurrent sentence encoders: the oracle's GRU and LSTM, directions by hand, the contract."""

from __future__ import annotations

import typing

import keras
import numpy as np
import pytest

from tests.contract import SAME, check_layer, check_padding
from tests.encoders.test_peephole import from_oracle
from tests.oracles import TOLERANCE, oracle
from vsemb.encoders import RecurrentSentenceEncoder, WordEmbedding
from vsemb.encoders.recurrent import Cell, Directions
from vsemb.errors import InvalidArgumentError

IDS = np.array([[2, 3, 4, 5], [5, 0, 0, 0], [4, 1, 2, 0]], np.int32)


def words_of(x: np.ndarray) -> WordEmbedding:
    """Ids 2, 3, ... stand for the rows of `x`; padding for something that would show."""
    layer = WordEmbedding(len(x) + 2, x.shape[1])
    layer.set_vectors(np.concatenate([[[7.0] * x.shape[1]] * 2, x]))
    return layer


def make_encoder(dtype: str = "float32", **options) -> RecurrentSentenceEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    return RecurrentSentenceEncoder(words, **{"dim": 5, "units": 4, **options}, dtype=dtype)


@pytest.mark.parametrize(
    ("cell", "directions", "pooling"),
    [
        ("gru", "forward", "last"),
        ("lstm", "concat", "last"),
        ("peephole-lstm", "forward", "last"),
        ("peephole-lstm", "concat", "mean"),
        ("gru", "average", "mean+max"),
    ],
)
def test_contract(cell: str, directions: str, pooling: str, tmp_path) -> None:
    keras.utils.set_random_seed(0)

    def make(dtype: str = "float32") -> RecurrentSentenceEncoder:
        return make_encoder(dtype, cell=cell, directions=directions, pooling=pooling)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


@pytest.mark.parametrize("cell", typing.get_args(Cell))
@pytest.mark.parametrize(("directions", "pooling"), [("forward", "max"), ("average", "last"), ("concat", "sum")])
def test_padding_changes_nothing(cell: str, directions: str, pooling: str) -> None:
    check_padding(make_encoder(cell=cell, directions=directions, pooling=pooling), IDS)


@pytest.mark.parametrize("arguments", [{"dim": 4}, {"init_scale": 0.08, "dropout": 0.3}])
def test_contract_of_options(arguments, tmp_path) -> None:
    # dim equal to units: no projection.
    def make(dtype: str = "float32") -> RecurrentSentenceEncoder:
        words = WordEmbedding(6, 3, dtype=dtype)
        return RecurrentSentenceEncoder(words, **{"dim": 5, "units": 4, **arguments}, dtype=dtype)

    check_layer(make, [IDS], tmp_path, sequence=True)
    assert (make().projection is None) == ("dim" in arguments)


@pytest.mark.parametrize("masked", [False, True])
def test_gru_is_that_of_the_toronto_code(masked: bool) -> None:
    # h = u * h_old + (1 - u) * candidate, the reset gate behind the recurrent product: Keras' z is
    # u, its kernels stand in the order u, r, h, and `reset_after` has two biases, both 0 here.
    entry = oracle("gru_reset_after_matmul")
    encoder = RecurrentSentenceEncoder(words_of(np.array(entry.inputs["x"])), 2, units=2)
    encoder.build((None, None))
    kernel, recurrent = (
        np.concatenate([np.array(entry.inputs[f"{side}{gate}"]) for gate in "urh"], axis=1) for side in "WU"
    )
    encoder.recurrent.set_weights([kernel, recurrent, np.zeros((2, 6))])
    ids = np.array([[2, 3, 0 if masked else 4]], np.int32)
    expected = entry.expected["hidden_mask_110" if masked else "hidden"][-1]
    np.testing.assert_allclose(encoder(ids)[0], expected, **TOLERANCE)


@pytest.mark.parametrize("masked", [False, True])
def test_peephole_lstm_is_that_of_the_paper(masked: bool) -> None:
    cell, x = from_oracle()
    encoder = RecurrentSentenceEncoder(words_of(x), 2, cell="peephole-lstm", units=2)
    encoder.build((None, None))
    encoder.recurrent.set_weights(cell.get_weights())
    ids = np.array([[2, 3, 0 if masked else 4]], np.int32)
    expected = oracle("lstm_peephole").expected["hidden_mask_110" if masked else "hidden"][-1]
    np.testing.assert_allclose(encoder(ids)[0], expected, **TOLERANCE)


@pytest.mark.parametrize("cell", typing.get_args(Cell))
def test_both_directions_are_two_readings(cell: str) -> None:
    keras.utils.set_random_seed(2)
    both = make_encoder(cell=cell, directions="concat", dim=8)
    expected = both(IDS).numpy()  # (3, 4 forward + 4 backward), no projection
    for row, ids in enumerate(IDS):
        ids = ids[ids != 0]
        for layer, sequence, part in (
            (both.recurrent.forward_layer, ids, slice(0, 4)),
            (both.recurrent.backward_layer, ids[::-1], slice(4, 8)),
        ):
            one = make_encoder(cell=cell, dim=4)
            one.build((None, None))
            one.words.set_vectors(both.words.get_weights()[0])
            one.recurrent.set_weights(layer.get_weights())
            np.testing.assert_allclose(one(sequence[None].copy())[0], expected[row, part], **SAME)
    average = make_encoder(cell=cell, directions="average", dim=4)
    average.build((None, None))
    average.set_weights(both.get_weights())
    np.testing.assert_allclose(average(IDS), (expected[:, :4] + expected[:, 4:]) / 2, **SAME)


def test_init_scale_bounds_all_matrices() -> None:
    for cell in typing.get_args(Cell):
        encoder = make_encoder(cell=cell, init_scale=0.08, dim=4)
        encoder.build((None, None))
        matrices = [w for w in encoder.recurrent.get_weights() if w.ndim == 2 and w.shape[0] > 2]
        assert matrices
        for matrix in matrices:
            assert 0.03 < np.abs(matrix).max() <= 0.08
            # Each from its own draw.
            assert sum(np.array_equal(matrix, other) for other in matrices) == 1


def test_dropout_acts_in_training_only() -> None:
    keras.utils.set_random_seed(0)
    encoder = make_encoder(dropout=0.5)
    still = encoder(IDS).numpy()
    np.testing.assert_array_equal(encoder(IDS).numpy(), still)
    assert (encoder(IDS, training=True).numpy() != still).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell": "grru"}, "Did you mean 'gru'"),
        ({"directions": "both"}, ", ".join(typing.get_args(Directions))),
        ({"pooling": "mean-max"}, r"mean\+max"),
    ],
)
def test_bad_arguments(arguments, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_encoder(**arguments)
