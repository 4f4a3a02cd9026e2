"""Regions by equation 1, padding, statistics; words by the oracle and equations 2 to 6, dropout, export."""

from __future__ import annotations

import functools
import typing

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer
from tests.encoders.test_recurrent import words_of
from tests.losses.slow import finite_differences
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.encoders import ImageEncoder, RecurrentSentenceEncoder, WordEmbedding
from vsemb.systems.regions.encoders import Cell, ContextualTokenEncoder, RegionEncoder

IDS = np.array([[2, 3, 4, 5], [5, 0, 0, 0], [4, 1, 2, 0]], np.int32)
FEATURES = np.random.default_rng(0).gamma(1.0, size=(3, 4, 6)).astype(np.float32)
FEATURES[0, 2:] = FEATURES[2, 1:] = 0
REAL = FEATURES.any(-1)
OPTIONS = {"dropout": 0.3, "init_scale": 0.08}
#: Everything that could make something of a row of zeros.
REGION_OPTIONS = {"dropout": 0.5, "standardize": True, "init_scale": 0.3}


@pytest.fixture(autouse=True)
def seeded() -> None:
    keras.utils.set_random_seed(0)


def make_encoder(dtype: str = "float32", **options) -> ContextualTokenEncoder:
    words = WordEmbedding(6, 3, dtype=dtype, init_scale=0.8)
    encoder = ContextualTokenEncoder(words, **{"dim": 5, "units": 4, **options}, dtype=dtype)
    encoder.build((None, None))
    # Padding without a mask would show, and no word's ReLUs are all idle.
    encoder.outer.bias.assign(np.resize([2.0, 1.0, 0.5, 1.5, 1.0], encoder.dim))
    return encoder


def slow_states(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Equations 3 to 6 of one sentence, (steps, dim), in float64; weights as the layer lists them."""
    inner, inner_bias, forward, forward_bias, backward, backward_bias, outer, outer_bias = (
        np.asarray(w, np.float64) for w in weights
    )

    def f(z: np.ndarray) -> np.ndarray:
        return np.where(z > 0, z, 0)

    units = len(forward)
    e = [f(step @ inner + inner_bias) for step in x]
    ahead, behind = [np.zeros(units)], [np.zeros(units)]
    for step in e:
        ahead.append(f(step + ahead[-1] @ forward + forward_bias))
    for step in reversed(e):
        behind.append(f(step + behind[-1] @ backward + backward_bias))
    hidden = zip(ahead[1:], reversed(behind[1:]), strict=True)
    return np.array([f((a + b) @ outer + outer_bias) for a, b in hidden])


@pytest.mark.parametrize("cell, options", [("brnn", {}), ("brnn", OPTIONS), ("gru", OPTIONS), ("lstm", {})])
def test_contract(cell: str, options, tmp_path) -> None:
    def make(dtype: str = "float32") -> ContextualTokenEncoder:
        return make_encoder(dtype, cell=cell, **options)

    assert check_layer(make, [IDS], tmp_path, sequence=True).shape == (3, 4, 5)


def test_oracle() -> None:
    entry = oracle("dvsa_brnn")
    given = {name: np.array(value) for name, value in entry.inputs.items()}
    encoder = ContextualTokenEncoder(words_of(given["x"]), 2, units=3)
    encoder.build((None, None))
    ids = np.array([[2, 3, 4]], np.int32)
    # The oracle multiplies columns, W x.
    for layer, matrix, bias in (
        (encoder.inner, "We", "be"),
        (encoder.recurrent.forward_layer, "Wf", "bf"),
        (encoder.recurrent.backward_layer, "Wb", "bb"),
        (encoder.outer, "Wd", "bd"),
    ):
        layer.set_weights([given[matrix].T, given[bias]])
    e = encoder.inner(encoder.words(ids))
    np.testing.assert_allclose(e[0], entry.expected["e"], **TOLERANCE)
    np.testing.assert_allclose(encoder.recurrent.forward_layer(e)[0], entry.expected["h_forward"], **TOLERANCE)
    # Keras gives the last word's state first.
    behind = encoder.recurrent.backward_layer(e)[0][::-1]
    np.testing.assert_allclose(behind, entry.expected["h_backward"], **TOLERANCE)
    np.testing.assert_allclose(encoder(ids)[0], entry.expected["s"], **TOLERANCE)
    padded = encoder(np.array([[2, 3, 4, 0, 0]], np.int32))[0]
    np.testing.assert_allclose(padded, [*entry.expected["s"], [0, 0], [0, 0]], **TOLERANCE)


def test_equals_recursion_forward_and_gradient() -> None:
    encoder = make_encoder()
    generator = np.random.default_rng(0)
    table, *weights = (generator.uniform(-0.9, 0.9, w.shape) for w in encoder.get_weights())
    encoder.set_weights([table, *weights])

    def slow(table: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
        return [slow_states(weights, table[ids[ids != 0]]) for ids in IDS]

    result = encoder(IDS).numpy()
    for row, expected in zip(result, slow(table, weights), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, rtol=1e-4, atol=1e-6)
        assert not row[len(expected) :].any()
    assert (result[IDS > 0] == 0).any()  # The ReLUs are not idle.
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder(IDS) ** 2)
    variables = [v.value for v in encoder.trainable_variables]
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(total, variables)]
    for number, gradient in enumerate(gradients):

        def value(values: np.ndarray, number: int = number) -> float:
            changed = [table, *weights]
            changed[number] = values
            return sum((s**2).sum() for s in slow(changed[0], changed[1:]))

        at = [table, *weights][number]
        # Central differences in float64 err by 1e-9; the analytic gradient is float32.
        np.testing.assert_allclose(gradient, finite_differences(value, at), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_other_cells_are_two_readings_and_equation_6(cell: str) -> None:
    keras.utils.set_random_seed(2)
    encoder = make_encoder(cell=cell)
    assert encoder.inner is None
    # The state at a word is the last one of a sentence that ends there, which is an encoder we have.
    one = RecurrentSentenceEncoder(encoder.words, 4, cell=cell, units=4)
    one.build((None, None))
    kernel, bias = encoder.outer.get_weights()
    for ids in IDS:
        ids = ids[ids != 0]
        hidden = np.zeros((len(ids), 4))
        for layer, order in ((encoder.recurrent.forward_layer, 1), (encoder.recurrent.backward_layer, -1)):
            one.recurrent.set_weights(layer.get_weights())
            read = ids[::order]
            states = [one(read[None, : t + 1]).numpy()[0] for t in range(len(read))]
            hidden += np.array(states)[::order]
        expected = np.maximum(hidden @ kernel + bias, 0)
        np.testing.assert_allclose(encoder(ids[None])[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype, training", [("float32", False), ("mixed_bfloat16", True)])
@pytest.mark.parametrize("cell", typing.get_args(Cell))
def test_padding_changes_nothing_and_is_zeros(cell: str, dtype: str, training: bool) -> None:
    encoder = make_encoder(dtype, cell=cell)

    def encode(ids: np.ndarray) -> np.ndarray:
        return np.asarray(tf.cast(encoder(ids, training=training), tf.float32))

    expected = encode(IDS)
    np.testing.assert_array_equal(expected.any(-1), IDS != 0)
    wider = encode(np.pad(IDS, [(0, 0), (0, 3)]))
    tolerance = SAME if dtype == "float32" else {"rtol": 0.05, "atol": 0.05}
    np.testing.assert_allclose(wider[:, :4], expected, **tolerance)
    assert not wider[:, 4:].any()
    for row, ids in enumerate(IDS):
        ids = ids[ids != 0]
        np.testing.assert_allclose(encode(ids[None])[0], expected[row, : len(ids)], **tolerance)
    assert not encode(np.zeros((2, 3), np.int32)).any()
    # Nor does what stands in the table for padding.
    encoder.words.table.assign(np.vstack([np.full((1, 3), 50.0), encoder.words.table.numpy()[1:]]))
    np.testing.assert_array_equal(encode(IDS), expected)


@pytest.mark.parametrize("cell", typing.get_args(Cell))
def test_padding_gets_no_gradient(cell: str) -> None:
    encoder = make_encoder(cell=cell)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(encoder(IDS) ** 2)
    gradient = tf.convert_to_tensor(tape.gradient(total, encoder.words.table.value)).numpy()
    assert not gradient[0].any()
    assert gradient[1:].any(axis=1).all()


def test_every_word_reads_the_whole_sentence_and_no_other() -> None:
    encoder = make_encoder(units=16)
    before = encoder(IDS).numpy()
    changed = IDS.copy()
    changed[0, 1] = 2
    after = encoder(changed).numpy()
    assert (after[0] != before[0]).any(axis=1).all()
    np.testing.assert_array_equal(after[1:], before[1:])


@pytest.mark.parametrize("cell", typing.get_args(Cell))
def test_dropout_is_everywhere_but_in_the_recurrence(cell: str) -> None:
    encoder = make_encoder(cell=cell, dropout=0.5, units=64)
    np.testing.assert_array_equal(encoder(IDS), encoder(IDS))
    assert (encoder(IDS, training=True).numpy() != encoder(IDS).numpy()).any()
    seen: dict[str, list[np.ndarray]] = {"recurrent": [], "outer": []}
    for name, inputs in seen.items():
        layer, call = getattr(encoder, name), getattr(encoder, name).call

        def spy(x, *args, inputs=inputs, call=call, **kwargs):
            inputs.append(x.numpy())
            return call(x, *args, **kwargs)

        layer.call = spy
    encoder(IDS)
    encoder(IDS, training=True)
    (still, dropped), (states, dropped_states) = seen.values()
    if cell == "brnn":
        # e_t, its kept entries doubled.
        kept = dropped != 0
        np.testing.assert_allclose(dropped[kept], 2 * still[kept], rtol=1e-5)
        assert 0.3 < kept[still != 0].mean() < 0.7
    else:
        # x_t is the business of the word vectors.
        np.testing.assert_array_equal(dropped, still)
    assert 0.3 < (dropped_states != 0)[states != 0].mean() < 0.7
    for layer in (encoder.recurrent.forward_layer, encoder.recurrent.backward_layer):
        assert not getattr(layer, "dropout", 0)
        assert not getattr(layer, "recurrent_dropout", 0)


@pytest.mark.parametrize("cell", typing.get_args(Cell))
def test_where_weights_start(cell: str) -> None:
    encoder = make_encoder(cell=cell, units=20, dim=30, init_scale=0.08)
    matrices = [w for w in encoder.get_weights()[1:] if w.ndim == 2 and len(w) > 2]
    assert len(matrices) == (4 if cell == "brnn" else 5)
    for matrix in matrices:
        assert 0.06 < np.abs(matrix).max() <= 0.08
        # Each from its own draw.
        assert sum(matrix.shape == m.shape and np.array_equal(matrix, m) for m in matrices) == 1


def test_recurrences_start_as_half_an_orthogonal_matrix() -> None:
    encoder = make_encoder(units=20)
    kernels = [getattr(encoder.recurrent, f"{d}_layer").cell.recurrent_kernel for d in ("forward", "backward")]
    for kernel in kernels:
        # float32 entries of 0.1 err by 1e-8, a sum of twenty products by 1e-7.
        np.testing.assert_allclose(kernel.numpy().T @ kernel.numpy(), np.eye(20) / 4, atol=1e-5)
    assert (kernels[0].numpy() != kernels[1].numpy()).any()


def test_in_a_saved_model(tmp_path) -> None:
    encoder = make_encoder(cell="gru")  # Exported models of `test_signature.py` have the other recurrence.
    serve = tf.function(
        lambda ids: encoder(ids), autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    module = tf.Module()
    module.serve, module.variables_ = serve, [v.value for v in encoder.variables]
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for ids in (IDS, IDS[:1, :1], np.pad(IDS, [(0, 2), (0, 5)])):
        np.testing.assert_allclose(loaded.serve(ids), encoder(ids), **SAME)


def test_compiled_by_xla() -> None:
    # `fit` compiles with XLA where there is a GPU.
    encoder = make_encoder()
    compiled = tf.function(lambda ids: encoder(ids), jit_compile=True)
    np.testing.assert_allclose(compiled(IDS), encoder(IDS), **SAME)


def test_no_rows() -> None:
    assert make_encoder()(np.zeros((0, 3), np.int32)).shape == (0, 3, 5)


@pytest.mark.parametrize(
    "options",
    [{"cell": "brn"}, {"units": 0}, {"dim": 0}],
    ids=["cell", "units", "dim"],
)
def test_bad_arguments(options) -> None:
    (name,) = options
    with raises_argument(name):
        make_encoder(**options)


def make_region_encoder(dtype: str = "float32", **options) -> RegionEncoder:
    """An encoder with a bias that is not zero and, where it scales, statistics of the real rows."""
    encoder = RegionEncoder(5, **options, dtype=dtype)
    encoder.build((None, None, 6))
    if encoder.use_bias:
        encoder.affine.bias.assign([3.0, -1.0, 2.0, 0.5, -4.0])
    if encoder.scaling is not None:
        encoder.scaling.adapt(FEATURES[REAL])
    return encoder


@pytest.mark.parametrize("options", [{}, REGION_OPTIONS, {"use_bias": False}], ids=["plain", "options", "no bias"])
def test_contract_of_regions(options, tmp_path) -> None:
    result = check_layer(functools.partial(make_region_encoder, **options), [FEATURES], tmp_path, sequence=True)
    assert result.shape == (3, 4, 5)


def test_equation_1_by_hand() -> None:
    encoder = RegionEncoder(2)
    encoder.build((None, None, 2))
    encoder.affine.set_weights([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 20.0])])
    # (1, 2) W + b = (1 + 6 + 10, 2 + 8 + 20), (0, -1) W + b = (-3 + 10, -4 + 20), and no region.
    features = np.array([[[1.0, 2.0], [0.0, 0.0], [0.0, -1.0]]])
    assert encoder(features).numpy().tolist() == [[[17, 30], [0, 0], [7, 16]]]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_padding_is_zeros_and_nothing_else_is(dtype: str, training: bool) -> None:
    result = np.asarray(tf.cast(make_region_encoder(dtype, **REGION_OPTIONS)(FEATURES, training=training), tf.float32))
    np.testing.assert_array_equal(result.any(-1), REAL)


def test_padded_regions_get_no_gradient() -> None:
    encoder, features = make_region_encoder(**REGION_OPTIONS), tf.constant(FEATURES)
    with tf.GradientTape() as tape:
        tape.watch(features)
        total = tf.reduce_sum(encoder(features) ** 2)
    gradient, bias = tape.gradient(total, [features, encoder.affine.bias.value])
    np.testing.assert_array_equal(np.asarray(gradient).any(-1), REAL)
    expected = 2 * encoder(FEATURES).numpy().sum((0, 1))
    np.testing.assert_allclose(bias, expected, rtol=1e-4)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_region_is_encoded_as_an_image_is(standardize: bool) -> None:
    regions = make_region_encoder(standardize=standardize)
    image = ImageEncoder(5, standardize=standardize)
    image.build((None, 6))
    image.set_weights(regions.get_weights())
    np.testing.assert_allclose(regions(FEATURES).numpy()[REAL], image(FEATURES[REAL]), **SAME)


def test_dropout_acts_in_training_only() -> None:
    encoder = make_region_encoder(dropout=0.5)
    np.testing.assert_array_equal(encoder(FEATURES), encoder(FEATURES))
    assert (encoder(FEATURES, training=True).numpy() != encoder(FEATURES).numpy()).any()


def test_any_number_of_images_and_regions() -> None:
    encoder = make_region_encoder(standardize=True)
    assert encoder(np.zeros((0, 4, 6), np.float32)).shape == (0, 4, 5)
    assert encoder(np.zeros((2, 0, 6), np.float32)).shape == (2, 0, 5)
    compiled = tf.function(encoder, autograph=False, input_signature=[tf.TensorSpec([None, None, 6])])
    for shape in ((1, 7, 6), (5, 1, 6)):
        features = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(compiled(features), encoder(features), **SAME)
