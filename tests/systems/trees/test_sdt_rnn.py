"""SDT-RNN states by hand, against a recursion with its gradient, and the encoder over them."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer, check_padding
from tests.oracles import TOLERANCE
from tests.raising import raises_argument
from tests.systems.trees.test_tree_lstm import MALFORMED, padded, trees
from tests.tiny import tiny
from vsemb import recipes
from vsemb.encoders import WordEmbedding
from vsemb.runs.train import train
from vsemb.systems.trees.relations import RELATIONS
from vsemb.systems.trees.sdt_rnn import SDTRNNEncoder, sdt_rnn_states

UNITS, COUNT = 3, 4
EXACT = {"rtol": 1e-12, "atol": 1e-12}
DET, NSUBJ, ROOT = (RELATIONS.index(name) for name in ("det", "nsubj", "root"))
# `the dog runs`, `runs`, and three words that hang on the first.
IDS = np.array(
    [
        [[2, 2, DET], [3, 3, NSUBJ], [4, 0, ROOT], [0, 0, 0]],
        [[4, 0, ROOT], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[4, 0, ROOT], [3, 1, NSUBJ], [1, 1, 0], [5, 1, NSUBJ]],
    ],
    np.int32,
)


def arguments(rows: list[list[int]]) -> tuple[np.ndarray, ...]:
    """Inputs, matrices, heads, relations and mask."""
    heads, mask = padded(rows)
    generator = np.random.default_rng(4)
    inputs = generator.normal(size=(*heads.shape, UNITS))
    recurrent = generator.normal(size=(COUNT, UNITS, UNITS))
    return inputs, recurrent, heads, generator.integers(0, COUNT, heads.shape), mask


def recursion(inputs: tf.Tensor, recurrent: tf.Tensor, heads: list[int], relations: np.ndarray) -> tf.Tensor:
    """h of each node of one tree, (steps, units), node by node."""
    states = {}

    def visit(node: int) -> int:
        children = [child for child, head in enumerate(heads) if head == node + 1]
        total, size = inputs[node], 1
        for child in children:
            below = visit(child)
            total += below * tf.linalg.matvec(recurrent[relations[child]], states[child], transpose_a=True)
            size += below
        states[node] = tf.tanh(total / size)
        return size

    visit(heads.index(0))
    return tf.stack([states[node] for node in range(len(heads))])


def test_by_hand() -> None:
    # `the dog runs`: the <- dog (det), dog <- runs (nsubj), with W_v x = 0.5, 1 and -1, W_det = 2 and W_nsubj = -1.
    # the: tanh(0.5). dog: l = 2, tanh((1 + 1 * 2 * h_the) / 2). runs: l = 3, tanh((-1 + 2 * -1 * h_dog) / 3).
    the = math.tanh(0.5)
    dog = math.tanh((1 + 2 * the) / 2)
    runs = math.tanh((-1 - 2 * dog) / 3)
    words = WordEmbedding(5, 1)
    words.set_vectors(np.array([[9.0], [9.0], [0.25], [0.5], [-0.5]]))
    encoder = SDTRNNEncoder(words, 1, units=1)
    encoder.build((None, None, 3))
    recurrent = np.full((len(RELATIONS), 1, 1), 99.0)
    recurrent[DET], recurrent[NSUBJ] = 2, -1
    encoder.kernel.assign([[2.0]])
    encoder.recurrent_kernel.assign(recurrent)
    np.testing.assert_allclose(encoder(IDS[:1]), [[runs]], **TOLERANCE)
    inputs, relations = np.array([[[0.5], [1.0], [-1.0]]]), np.array([[1, 2, 0]])
    matrices, mask = np.array([[[99.0]], [[2.0]], [[-1.0]]]), np.ones((1, 3), bool)
    states = sdt_rnn_states(tf.constant(inputs), tf.constant(matrices), np.array([[2, 3, 0]]), relations, mask)
    np.testing.assert_allclose(states[0, :, 0], [the, dog, runs], **EXACT)


def test_states_and_gradients_are_those_of_the_recursion() -> None:
    inputs, recurrent, heads, relations, mask = arguments(trees())
    inputs, recurrent = tf.constant(inputs), tf.constant(recurrent)
    factors = np.random.default_rng(9).normal(size=inputs.shape)

    def slow() -> tf.Tensor:
        rows = []
        for row, tree in enumerate(trees()):
            states = recursion(inputs[row], recurrent, tree, relations[row])
            rows.append(tf.pad(states, [[0, heads.shape[1] - len(tree)], [0, 0]]))
        return tf.stack(rows)

    results = []
    for function in (slow, lambda: sdt_rnn_states(inputs, recurrent, heads, relations, mask)):
        with tf.GradientTape() as tape:
            tape.watch([inputs, recurrent])
            states = function()
            total = tf.reduce_sum(factors * states**2)
        gradients = tape.gradient(total, [inputs, recurrent])
        results.append([states, *map(tf.convert_to_tensor, gradients)])
    for expected, fast in zip(*results, strict=True):
        np.testing.assert_allclose(fast, expected, **EXACT)
    assert not results[1][1].numpy()[~mask].any()


def test_in_a_graph_of_unknown_shapes() -> None:
    inputs, recurrent, heads, relations, mask = arguments(trees())
    matrices = tf.constant(recurrent)

    def with_gradient(inputs: tf.Tensor, heads: tf.Tensor, relations: tf.Tensor, mask: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([inputs, matrices])
            states = sdt_rnn_states(inputs, matrices, heads, relations, mask)
            total = tf.reduce_sum(states**2)
        return [states, *tape.gradient(total, [inputs, matrices])]

    unknown = [tf.TensorSpec([None, None, UNITS], tf.float64)]
    unknown += [tf.TensorSpec([None, None], dtype) for dtype in (tf.int32, tf.int64, tf.bool)]
    function = tf.function(with_gradient, autograph=False, input_signature=unknown)
    tensors = [tf.constant(array) for array in (inputs, heads, relations, mask)]
    for fast, eager in zip(function(*tensors), with_gradient(*tensors), strict=True):
        np.testing.assert_allclose(fast, eager, **EXACT)
    for shape in [(0, 5), (3, 0), (0, 0)]:
        nothing = np.zeros(shape)
        empty = np.zeros((*shape, UNITS)), nothing.astype(np.int32), nothing.astype(np.int64), nothing.astype(bool)
        assert function(*empty)[0].shape == (*shape, UNITS)


def test_padding_order_and_neighbours_change_nothing() -> None:
    rows = trees()
    inputs, recurrent, heads, relations, mask = arguments(rows)
    expected = sdt_rnn_states(tf.constant(inputs), recurrent, heads, relations, mask).numpy()
    wild = tf.constant(np.where(mask[..., None], inputs, 1e6))
    states = sdt_rnn_states(wild, recurrent, np.where(mask, heads, 7), np.where(mask, relations, 1), mask)
    np.testing.assert_allclose(states, expected, **EXACT)
    for row, tree in enumerate(rows):
        part = (slice(row, row + 1), slice(len(tree)))
        alone = sdt_rnn_states(tf.constant(inputs[part]), recurrent, heads[part], relations[part], mask[part])
        np.testing.assert_allclose(alone, expected[part], **EXACT)


@pytest.mark.parametrize("bad", MALFORMED.values(), ids=MALFORMED)
def test_rows_without_a_tree_have_no_states(bad: list[int]) -> None:
    good = [3, 3, 0, 5, 3]
    inputs, recurrent, heads, relations, mask = arguments([good, bad, good])
    states = sdt_rnn_states(tf.constant(inputs), recurrent, heads, relations, mask).numpy()
    assert not states[1].any()
    for row in (0, 2):
        expected = recursion(tf.constant(inputs[row]), tf.constant(recurrent), good, relations[row])
        np.testing.assert_allclose(states[row, : len(good)], expected, **EXACT)


def make(dtype: str = "float32", **options) -> SDTRNNEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.5)
    return SDTRNNEncoder(words, **{"dim": 5, "units": 4, **options}, dtype=dtype)


@pytest.mark.parametrize(
    "options",
    [{}, {"pooling": "mean+max", "init_scale": 0.08, "dropout": 0.3}, {"dim": 4}],
    ids=["defaults", "options", "no projection"],
)
def test_contract(options, tmp_path) -> None:
    keras.utils.set_random_seed(0)
    check_layer(lambda dtype="float32": make(dtype, **options), [IDS], tmp_path, sequence=True)


@pytest.mark.parametrize("pooling", ["root", "mean+max"])
def test_padding_and_neighbours_change_nothing(pooling: str) -> None:
    check_padding(make(pooling=pooling), IDS)


def test_the_relation_matters() -> None:
    encoder, other = make(), IDS.copy()
    other[0, 0, 2] = NSUBJ
    changed = np.abs(encoder(other).numpy() - encoder(IDS).numpy()).max(-1) > 1e-6
    assert changed.tolist() == [True, False, False]
    # Nothing hangs on a relation of the root.
    other = IDS.copy()
    other[..., 2] = np.where(IDS[..., 2] == ROOT, DET, IDS[..., 2])
    np.testing.assert_allclose(encoder(other), encoder(IDS), **SAME)


@pytest.mark.parametrize("arguments", [{"pooling": "last"}, {"units": 0}], ids=str)
def test_bad_arguments(arguments) -> None:
    (name,) = arguments
    with raises_argument(name):
        make(**arguments)


@pytest.mark.slow
def test_tree_twin_trains_and_is_served(parsed_scenes, tmp_path) -> None:
    overrides = ["text.tokenizer=labelled-trees", "text.encoder.encoder=sdt-rnn", "text.encoder.encoder.words.dim=8"]
    recipe = tiny(recipes.get("tree-twin", "vs"), "training.epochs=1", *overrides)
    run = train(recipe, parsed_scenes, tmp_path / "run")
    captions = parsed_scenes.split("val").captions[:3]
    stored = run.model.encode_texts(run.tokenizer(run.texts_of(parsed_scenes.split("val"))[0][:3]))
    served = run.encoders(images=False)
    np.testing.assert_allclose(served.encode_text(tf.constant(captions))["embedding"], stored, rtol=1e-4, atol=1e-5)
