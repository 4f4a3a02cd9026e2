"""The Tree-LSTM encoder: the oracle's trees, pooling by hand, the contract, export."""

from __future__ import annotations

import typing

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer
from tests.oracles import TOLERANCE, oracle
from vsemb.encoders import WordEmbedding
from vsemb.errors import InvalidArgumentError
from vsemb.systems.trees.tree_lstm import Children, TreeLSTMEncoder, TreePooling

WORDS = [[2, 3, 4, 5], [5, 0, 0, 0], [4, 1, 2, 0]]
HEADS = [[2, 0, 4, 2], [0, 0, 0, 0], [3, 3, 0, 0]]
IDS = np.stack([WORDS, HEADS], axis=-1).astype(np.int32)


def make_encoder(dtype: str = "float32", **options) -> TreeLSTMEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    return TreeLSTMEncoder(words, **{"dim": 5, "units": 4, **options}, dtype=dtype)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"children": "sum", "pooling": "mean"},
        {"slots": 1, "pooling": "mean+max", "init_scale": 0.08, "dropout": 0.3},
        {"slots": 3, "pooling": "max", "dim": 4},
    ],
    ids=["slots", "sum", "options", "no projection"],
)
def test_contract(options, tmp_path) -> None:
    keras.utils.set_random_seed(0)

    def make(dtype: str = "float32") -> TreeLSTMEncoder:
        return make_encoder(dtype, **options)

    check_layer(make, [IDS], tmp_path, sequence=True)
    assert (make().projection is None) == ("dim" in options)


@pytest.mark.parametrize("pooling", typing.get_args(TreePooling))
@pytest.mark.parametrize("children", typing.get_args(Children))
def test_padding_and_neighbours_change_nothing(children: str, pooling: str) -> None:
    encoder = make_encoder(children=children, pooling=pooling)
    expected = encoder(IDS).numpy()
    np.testing.assert_allclose(encoder(np.pad(IDS, [(0, 0), (0, 3), (0, 0)])), expected, **SAME)
    for row, ids in enumerate(IDS):
        np.testing.assert_allclose(encoder(ids[ids[:, 0] != 0][None])[0], expected[row], **SAME)
    assert np.isfinite(encoder(np.zeros((2, 3, 2), np.int32))).all()


def test_no_rows() -> None:
    assert make_encoder()(np.zeros((0, 3, 2), np.int32)).shape == (0, 5)


def test_rows_without_a_tree_are_like_rows_without_words() -> None:
    encoder = make_encoder()
    nothing = encoder(np.zeros((1, 4, 2), np.int32)).numpy()[0]
    broken = IDS.copy()
    broken[0, :, 1] = [2, 1, 4, 2]  # a cycle
    result = encoder(broken).numpy()
    np.testing.assert_allclose(result[0], nothing, **SAME)
    np.testing.assert_allclose(result[1:], encoder(IDS)[1:], **SAME)


def test_one_left_and_one_right_child_of_the_oracle() -> None:
    entry = oracle("tree_lstm_scalar")
    p = entry.inputs["params"]
    words = WordEmbedding(5, 1)
    words.set_vectors(np.array([[9.0], [9.0], [0.5], [1.0], [-0.4]]))
    encoder = TreeLSTMEncoder(words, 1, units=1)
    encoder.build((None, None, 2))
    recurrent = [
        [[*(p[f"{side}{gate}"][k] for gate in "iou"), *(p[f"{side}{f}"][j][k] for f in "lr" for j in (0, 1))]]
        for side in "UV"
        for k in (0, 1)
    ]
    encoder.kernel.assign([[p[f"W{gate}"] for gate in "iouf"]])
    encoder.recurrent_kernel.assign(recurrent)
    encoder.bias.assign([p[f"b{gate}"] for gate in "iouf"])
    leaf, both = [[2, 0], [0, 0], [0, 0]], [[2, 2], [3, 0], [4, 2]]
    expected = [entry.expected[f"{name}_h_c"][:1] for name in ("leaf", "one_left_one_right")]
    np.testing.assert_allclose(encoder(np.array([leaf, both], np.int32)), expected, **TOLERANCE)


def test_pooling_is_over_all_nodes() -> None:
    # The state of a node is that of the root of its subtree: "3" and "5 -> 4" hang on the root, "2".
    ids = np.array([[[3, 2], [2, 0], [5, 4], [4, 2]]], np.int32)
    subtrees = [[[3, 0]], ids[0], [[5, 0]], [[5, 2], [4, 0]]]
    root = make_encoder(dim=4)
    states = np.stack([root(np.array([tree], np.int32))[0] for tree in subtrees])
    for pooling, expected in (
        ("mean", states.mean(0)),
        ("max", states.max(0)),
        ("mean+max", np.concatenate([states.mean(0), states.max(0)])),
    ):
        pooled = make_encoder(dim=len(expected), pooling=pooling)
        pooled.build((None, None, 2))
        pooled.set_weights(root.get_weights())
        np.testing.assert_allclose(pooled(ids)[0], expected, **SAME)


@pytest.mark.parametrize("children", typing.get_args(Children))
def test_where_weights_start(children: str) -> None:
    units = 20
    for scale in (None, 0.08):
        encoder = make_encoder(units=units, children=children, init_scale=scale)
        encoder.build((None, None, 2))
        slots = 4 if children == "slots" else 1
        # Glorot: the root of 6 / (rows + columns), with the rows of all slots.
        limits = np.sqrt(6 / (3 + 4 * units)), np.sqrt(6 / (slots * units + (3 + slots) * units))
        kernels = encoder.kernel.numpy(), encoder.recurrent_kernel.numpy()
        assert kernels[1].shape == (slots, units, (3 + slots) * units)
        for kernel, limit in zip(kernels, limits if scale is None else (scale, scale), strict=True):
            assert 0.9 * limit < np.abs(kernel).max() <= limit
        np.testing.assert_array_equal(encoder.bias, [0] * 3 * units + [1] * units)


def test_dropout_acts_in_training_only() -> None:
    keras.utils.set_random_seed(0)
    encoder = make_encoder(dropout=0.5)
    still = encoder(IDS).numpy()
    np.testing.assert_array_equal(encoder(IDS).numpy(), still)
    assert (encoder(IDS, training=True).numpy() != still).any()


def test_exported(tmp_path) -> None:
    encoder = make_encoder()
    model = keras.Sequential([keras.Input((None, 2), dtype="int32"), encoder])
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for ids in (IDS, IDS[:1, :, :], np.zeros((0, 5, 2), np.int32)):
        np.testing.assert_allclose(loaded.serve(tf.constant(ids)), encoder(ids), **SAME)


def test_fit_learns_what_the_heads_say() -> None:
    # The same words, told apart by their heads alone.
    keras.utils.set_random_seed(1)
    ids = np.array([[[2, 2], [3, 0]], [[2, 0], [3, 1]]] * 8, np.int32)
    labels = np.array([0, 1] * 8)
    model = keras.Sequential([keras.Input((None, 2), dtype="int32"), make_encoder(dim=2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    assert not model.jit_compile
    losses = model.fit(ids, labels, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.2 < losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"children": "slot"}, "Did you mean 'slots'"),
        ({"pooling": "last"}, r"root, mean, max, mean\+max"),
        ({"slots": 0}, "slots=0"),
        ({"units": 0}, "units=0"),
    ],
)
def test_bad_arguments(arguments, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_encoder(**arguments)
