"""Tree-LSTM states against the oracle, a recursion and finite differences; which heads are trees."""

from __future__ import annotations

import typing

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.encoders import WordEmbedding
from vsemb.systems.trees.tree_lstm import (
    Children,
    TreeLSTMEncoder,
    TreePooling,
    child_slots,
    root_states,
    tree_lstm_states,
    tree_lstm_states_reference,
    valid_trees,
)

# Slots a side; 0 stands for the child-sum variant.
VARIANTS = [1, 2, 3, 0]
UNITS = 3

#: float64 all along; sums of tens of terms.
EXACT = {"rtol": 1e-12, "atol": 1e-12}

#: float32, ten levels of about twenty terms each of order 1.
FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}

MALFORMED = {
    "cycle beside a tree": [0, 3, 2],
    "own head": [0, 2, 1],
    "two roots": [0, 1, 0],
    "no root": [2, 3, 1],
    "head behind the sentence": [0, 1, 4],
    "head far outside": [0, 1, 2**31 - 1],
    "negative head": [0, 1, -1],
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def recursion(x: np.ndarray, recurrent: np.ndarray, heads: list[int], per_side: int) -> np.ndarray:
    """h of each node of one tree, (steps, units), node by node."""
    units = recurrent.shape[1]
    states = np.zeros((len(heads), units))

    def visit(node: int) -> tuple[np.ndarray, np.ndarray]:
        children = [child for child, head in enumerate(heads) if head == node + 1]
        below = {child: visit(child) for child in children}
        iou, f = x[node, : 3 * units].copy(), x[node, 3 * units :]
        kept = np.zeros(units)
        if per_side == 0:
            for h, c in below.values():
                z = h @ recurrent[0]
                iou += z[: 3 * units]
                kept += sigmoid(f + z[3 * units :]) * c
        else:
            h_slots, c_slots = np.zeros((2, 2 * per_side, units))
            for first, side in (
                (0, [child for child in children if child < node]),
                (per_side, [child for child in children if child > node]),
            ):
                for rank, child in enumerate(side):
                    h_slots[first + min(rank, per_side - 1)] += below[child][0]
                    c_slots[first + min(rank, per_side - 1)] += below[child][1]
            z = sum(h @ matrix for h, matrix in zip(h_slots, recurrent, strict=True))
            iou += z[: 3 * units]
            for gate, c in enumerate(c_slots):
                kept += sigmoid(f + z[(3 + gate) * units : (4 + gate) * units]) * c
        i, o, u = np.split(iou, 3)
        c = sigmoid(i) * np.tanh(u) + kept
        states[node] = sigmoid(o) * np.tanh(c)
        return states[node], c

    visit(heads.index(0))
    return states


def random_tree(size: int, generator: np.random.Generator) -> list[int]:
    """Heads of a tree over words in any order, so projective by chance only."""
    order = generator.permutation(size)
    heads = [0] * size
    for place in range(1, size):
        heads[order[place]] = int(order[generator.integers(place)]) + 1
    return heads


def trees() -> list[list[int]]:
    generator = np.random.default_rng(3)
    chains = [[0, 1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7, 0]]
    stars = [[4, 4, 4, 0, 4, 4, 4], [0, 1, 1, 1, 1], [5, 5, 5, 5, 0]]
    return [[0], *chains, *stars, *(random_tree(size, generator) for size in (2, 3, 5, 8, 10, 12, 12))]


def padded(rows: list[list[int]], extra: int = 2) -> tuple[np.ndarray, np.ndarray]:
    heads = np.zeros((len(rows), max(map(len, rows)) + extra), np.int32)
    mask = np.zeros(heads.shape, bool)
    for row, values in enumerate(rows):
        heads[row, : len(values)] = values
        mask[row, : len(values)] = True
    return heads, mask


def weights(
    per_side: int, shape: tuple[int, int], units: int = UNITS, dtype: str = "float64"
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(per_side)
    slots = 2 * per_side or 1
    inputs = generator.normal(size=(*shape, 4 * units))
    recurrent = generator.normal(size=(slots, units, (3 + slots) * units)) / np.sqrt(units)
    return inputs.astype(dtype), recurrent.astype(dtype)


def with_gradients(function, inputs, recurrent, heads, mask, **options):
    """States, and the gradients of a weighted sum of their squares."""
    inputs, recurrent = tf.constant(inputs), tf.constant(recurrent)
    factors = np.random.default_rng(9).normal(size=(*heads.shape, recurrent.shape[1]))
    with tf.GradientTape() as tape:
        tape.watch([inputs, recurrent])
        states = function(inputs, recurrent, heads, mask, **options)
        total = tf.reduce_sum(tf.cast(factors, states.dtype) * states**2)
    return [states, *tape.gradient(total, [inputs, recurrent])]


def laid_out(tree: list) -> tuple[list[float], list[int], int]:
    """Words and heads of the oracle's [word, left children, right children], and the root's number."""
    words: list[float] = []
    heads: list[int] = []

    def read(node: list) -> int:
        word, left, right = node
        before = [read(child) for child in left]
        words.append(word)
        heads.append(0)
        number = len(words)
        for child in before + [read(child) for child in right]:
            heads[child - 1] = number
        return number

    root = read(tree)
    return words, heads, root


@pytest.mark.parametrize("function", [tree_lstm_states, tree_lstm_states_reference])
def test_oracle(function) -> None:
    entry = oracle("tree_lstm_scalar")
    p = entry.inputs["params"]
    # One row a slot: the two left ones (U), the two right ones (V); columns i, o, u, l_1, l_2, r_1, r_2.
    recurrent = [
        [[*(p[f"{side}{gate}"][k] for gate in "iou"), *(p[f"{side}{f}"][j][k] for f in "lr" for j in (0, 1))]]
        for side in "UV"
        for k in (0, 1)
    ]
    for name, tree in entry.inputs["trees"].items():
        words, heads, root = laid_out(tree)
        x = [[p[f"W{gate}"] * word + p[f"b{gate}"] for gate in "iouf"] for word in words]
        arguments = np.array([heads], np.int32), np.ones((1, len(heads)), bool)
        states = function(np.array([x]), np.array(recurrent), *arguments)
        np.testing.assert_allclose(states[0, root - 1, 0], entry.expected[f"{name}_h_c"][0], **TOLERANCE)
        np.testing.assert_array_equal(root_states(states, *arguments), states[:, root - 1])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("per_side", VARIANTS)
@pytest.mark.parametrize("function", [tree_lstm_states, tree_lstm_states_reference])
def test_states_are_those_of_the_recursion(function, per_side: int, dtype: str) -> None:
    heads, mask = padded(trees())
    inputs, recurrent = weights(per_side, heads.shape)
    states = function(inputs.astype(dtype), recurrent.astype(dtype), heads, mask, child_sum=per_side == 0).numpy()
    assert states.dtype == dtype
    for row, tree in enumerate(trees()):
        expected = recursion(inputs[row], recurrent, tree, per_side)
        np.testing.assert_allclose(states[row, : len(tree)], expected, **(EXACT if dtype == "float64" else FLOAT32))
    assert not states[~mask].any()


@pytest.mark.parametrize("per_side", VARIANTS)
def test_gradients_are_those_of_the_reference(per_side: int) -> None:
    heads, mask = padded([*trees(), *MALFORMED.values(), []])
    inputs, recurrent = weights(per_side, heads.shape)
    arguments = inputs, recurrent, heads, mask
    fast = with_gradients(tree_lstm_states, *arguments, child_sum=per_side == 0)
    slow = with_gradients(tree_lstm_states_reference, *arguments, child_sum=per_side == 0)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, **EXACT)
    assert not fast[1].numpy()[~mask].any()


@pytest.mark.parametrize("per_side", VARIANTS)
def test_gradients_are_finite_differences(per_side: int) -> None:
    rows = trees()[3:]
    heads, mask = padded(rows, extra=0)
    inputs, recurrent = weights(per_side, heads.shape)
    factors = np.random.default_rng(9).normal(size=(*heads.shape, UNITS))

    def total(inputs: np.ndarray, recurrent: np.ndarray) -> float:
        return sum(
            float((factors[row, : len(tree)] * recursion(inputs[row], recurrent, tree, per_side) ** 2).sum())
            for row, tree in enumerate(rows)
        )

    _, by_inputs, by_recurrent = with_gradients(
        tree_lstm_states, inputs, recurrent, heads, mask, child_sum=per_side == 0
    )
    generator = np.random.default_rng(1)
    for _ in range(4):
        a, b = generator.normal(size=inputs.shape), generator.normal(size=recurrent.shape)
        step = 1e-6
        for da, db in ((a, 0 * b), (0 * a, b)):
            difference = total(inputs + step * da, recurrent + step * db) - total(
                inputs - step * da, recurrent - step * db
            )
            slope = (by_inputs.numpy() * da).sum() + (by_recurrent.numpy() * db).sum()
            # Central differences: their error is of order step**2 plus rounding / step, both below 1e-8.
            np.testing.assert_allclose(difference / (2 * step), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("per_side", [2, 0])
def test_padding_order_and_neighbours_change_nothing(per_side: int) -> None:
    rows = trees()
    heads, mask = padded(rows)
    inputs, recurrent = weights(per_side, heads.shape)
    options = {"child_sum": per_side == 0}
    expected = tree_lstm_states(inputs, recurrent, heads, mask, **options).numpy()

    noise = np.where(mask, heads, 7)
    wild = np.where(mask[..., None], inputs, 1e6)
    np.testing.assert_array_equal(tree_lstm_states(wild, recurrent, noise, mask, **options), expected)
    order = np.random.default_rng(0).permutation(len(rows))
    shuffled = tree_lstm_states(inputs[order], recurrent, heads[order], mask[order], **options)
    np.testing.assert_allclose(shuffled, expected[order], **EXACT)
    for row, tree in enumerate(rows):
        part = (slice(row, row + 1), slice(len(tree)))
        alone = tree_lstm_states(inputs[part], recurrent, heads[part], mask[part], **options)
        np.testing.assert_allclose(alone, expected[part], **EXACT)


@pytest.mark.parametrize("function", [tree_lstm_states, tree_lstm_states_reference])
@pytest.mark.parametrize("bad", MALFORMED.values(), ids=MALFORMED)
def test_rows_without_a_tree_have_no_states(bad: list[int], function) -> None:
    good = [3, 3, 0, 5, 3]
    heads, mask = padded([good, bad, good])
    inputs, recurrent = weights(2, heads.shape)
    states = function(inputs, recurrent, heads, mask).numpy()
    assert not states[1].any()
    expected = function(inputs[::2], recurrent, heads[::2], mask[::2])
    np.testing.assert_allclose(states[::2], expected, **EXACT)


def test_a_gap_in_the_mask_is_no_tree() -> None:
    mask = np.array([[True, False, True], [False, True, True], [True, True, False], [False] * 3])
    heads = np.array([[0, 0, 1], [0, 0, 2], [0, 1, 3], [0, 0, 0]])
    assert valid_trees(heads, mask)[0].numpy().tolist() == [False, False, True, False]


def test_valid_trees() -> None:
    heads, mask = padded([*trees(), *MALFORMED.values(), []])
    expected = [True] * len(trees()) + [False] * (len(MALFORMED) + 1)
    assert valid_trees(heads, mask)[0].numpy().tolist() == expected


def test_valid_trees_of_every_kind() -> None:
    # All 4**3 ways to give three words heads: by walking up from each word.
    heads = np.array(list(np.ndindex(4, 4, 4)), np.int32)

    def is_tree(row: np.ndarray) -> bool:
        for node in range(1, 4):
            for _ in range(3):
                node = row[node - 1] if node else 0
            if node:
                return False
        return (row == 0).sum() == 1

    valid = valid_trees(heads, np.ones(heads.shape, bool))[0].numpy()
    np.testing.assert_array_equal(valid, [is_tree(row) for row in heads])
    assert valid.sum() == 9  # Cayley: 3 ** (3 - 1) rooted trees over three words


def test_slots_are_ranks_among_siblings_of_a_side() -> None:
    heads = np.array([[4, 4, 4, 0, 4, 4, 4], [2, 0, 2, 3, 3, 0, 0]])
    mask = np.array([[True] * 7, [True] * 5 + [False] * 2])
    assert child_slots(heads, mask, 3).numpy().tolist() == [[0, 1, 2, 0, 3, 4, 5], [0, 0, 3, 3, 4, 0, 0]]
    assert child_slots(heads, mask, 2).numpy().tolist() == [[0, 1, 1, 0, 2, 3, 3], [0, 0, 2, 2, 3, 0, 0]]
    assert child_slots(heads, mask, 1).numpy().tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("per_side", [2, 0])
def test_in_a_graph_of_unknown_shapes(per_side: int) -> None:
    units = 4
    _, recurrent = weights(per_side, (1, 1), units, "float32")

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None, 4 * units], tf.float32),
            tf.TensorSpec([None, None], tf.int64),
            tf.TensorSpec([None, None], tf.bool),
        ],
    )
    def function(inputs, heads, mask):
        return with_gradients_of(inputs, heads, mask)

    def with_gradients_of(inputs, heads, mask):
        matrices = tf.constant(recurrent)
        with tf.GradientTape() as tape:
            tape.watch([inputs, matrices])
            states = tree_lstm_states(inputs, matrices, heads, mask, child_sum=per_side == 0)
            total = tf.reduce_sum(root_states(states, heads, mask) ** 2)
        return [states, *tape.gradient(total, [inputs, matrices])]

    heads, mask = padded(trees())
    inputs, _ = weights(per_side, heads.shape, units, "float32")
    eager = with_gradients_of(tf.constant(inputs), tf.constant(heads), tf.constant(mask))
    for a, b in zip(function(inputs, heads.astype(np.int64), mask), eager, strict=True):
        np.testing.assert_allclose(a, b, **FLOAT32)
    for shape in [(0, 5), (3, 0), (0, 0), (3, 2)]:
        nothing = np.zeros(shape)
        states, by_inputs, by_recurrent = function(
            np.ones((*shape, 4 * units), np.float32), nothing.astype(np.int64), nothing.astype(bool)
        )
        assert states.shape == (*shape, units)
        assert by_inputs.shape == (*shape, 4 * units)
        assert not by_recurrent.numpy().any()


def test_half_precision_is_computed_in_float32() -> None:
    heads, mask = padded(trees())
    inputs, recurrent = (tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy() for x in weights(2, heads.shape))
    expected = tree_lstm_states(inputs, recurrent, heads, mask)
    low = with_gradients(tree_lstm_states, tf.cast(inputs, tf.bfloat16), tf.cast(recurrent, tf.bfloat16), heads, mask)
    assert {x.dtype for x in low} == {tf.bfloat16}
    # Rounded once, at the end, to 8 bits.
    np.testing.assert_allclose(tf.cast(low[0], tf.float32), expected, rtol=2**-8, atol=0)


def test_a_tree_as_deep_as_it_is_long() -> None:
    steps = 100
    heads = np.arange(steps, dtype=np.int32)[None]
    inputs, recurrent = weights(1, heads.shape, 2)
    states = tree_lstm_states(inputs, recurrent, heads, np.ones(heads.shape, bool))
    np.testing.assert_allclose(states[0], recursion(inputs[0], recurrent, heads[0].tolist(), 1), **EXACT)


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


@pytest.mark.slow
def test_exported(tmp_path) -> None:
    encoder = make_encoder()
    model = keras.Sequential([keras.Input((None, 2), dtype="int32"), encoder])
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for ids in (IDS, IDS[:1, :, :], np.zeros((0, 5, 2), np.int32)):
        np.testing.assert_allclose(loaded.serve(tf.constant(ids)), encoder(ids), **SAME)


@pytest.mark.slow
def test_fit_learns_what_the_heads_say() -> None:
    # The same words, told apart by their heads alone.
    keras.utils.set_random_seed(1)
    ids = np.array([[[2, 2], [3, 0]], [[2, 0], [3, 1]]] * 8, np.int32)
    labels = np.array([0, 1] * 8)
    model = keras.Sequential([keras.Input((None, 2), dtype="int32"), make_encoder(dim=2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.2), loss)
    assert not model.jit_compile
    losses = model.fit(ids, labels, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < 0.2 < losses[0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"children": "slot"},
        {"pooling": "last"},
        {"slots": 0},
        {"units": 0},
    ],
)
def test_bad_arguments(arguments) -> None:
    (name,) = arguments
    with raises_argument(name):
        make_encoder(**arguments)
