"""Recurrent sentence encoders: the oracle's GRU and LSTM, directions by hand, the contract."""

from __future__ import annotations

import typing
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import SAME, check_layer, check_padding
from tests.encoders.test_cells import from_oracle
from tests.oracles import TOLERANCE, oracle
from vsemb.encoders import NGramEmbedding, RecurrentSentenceEncoder, WordEmbedding
from vsemb.encoders.recurrent import GRU, LSTM, Cell, Directions
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
        ("gru", "average", "mean+max"),
        ("lstm", "concat", "last"),
        ("peephole-lstm", "forward", "last"),
    ],
)
def test_contract(cell: str, directions: str, pooling: str, tmp_path) -> None:
    keras.utils.set_random_seed(0)

    def make(dtype: str = "float32") -> RecurrentSentenceEncoder:
        return make_encoder(dtype, cell=cell, directions=directions, pooling=pooling)

    check_layer(make, [IDS], tmp_path, sequence=True)
    check_padding(make(), IDS)


@pytest.mark.parametrize("cell", typing.get_args(Cell))
@pytest.mark.parametrize(("directions", "pooling"), [("forward", "max"), ("concat", "sum")])
def test_padding_changes_nothing(cell: str, directions: str, pooling: str) -> None:
    check_padding(make_encoder(cell=cell, directions=directions, pooling=pooling), IDS)


def test_contract_of_options(tmp_path) -> None:
    # dim equal to units: no projection.
    def make(dtype: str = "float32", dim: int = 4) -> RecurrentSentenceEncoder:
        words = WordEmbedding(6, 3, dtype=dtype)
        return RecurrentSentenceEncoder(words, dim, units=4, init_scale=0.08, dropout=0.3, dtype=dtype)

    check_layer(make, [IDS], tmp_path, sequence=True)
    assert make().projection is None and make(dim=5).projection is not None


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
def test_gru_with_reset_before_is_that_of_cho(masked: bool) -> None:
    # Cho et al. 2014, equations 5 to 8: candidate tanh(W x + U (r * h)), h = z h + (1 - z) candidate.
    generator = np.random.default_rng(5)
    x, w, u = (generator.normal(size=size) for size in ((3, 4), (3, 4, 2), (3, 2, 2)))  # gates z, r, candidate
    encoder = RecurrentSentenceEncoder(words_of(x), 2, cell="gru-reset-before", units=2)
    encoder.build((None, None))
    encoder.recurrent.set_weights([np.concatenate(w, axis=1), np.concatenate(u, axis=1), np.zeros(6)])
    h = np.zeros(2)
    for word in x[: 2 if masked else 3]:
        z, r = (1 / (1 + np.exp(-(word @ w[gate] + h @ u[gate]))) for gate in (0, 1))
        h = z * h + (1 - z) * np.tanh(word @ w[2] + (r * h) @ u[2])
    np.testing.assert_allclose(encoder(np.array([[2, 3, 0 if masked else 4]], np.int32))[0], h, **TOLERANCE)


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
    one = make_encoder(cell=cell, dim=4)
    one.build((None, None))
    one.words.set_vectors(both.words.get_weights()[0])
    for row, ids in enumerate(IDS):
        ids = ids[ids != 0]
        for layer, sequence, part in (
            (both.recurrent.forward_layer, ids, slice(0, 4)),
            (both.recurrent.backward_layer, ids[::-1], slice(4, 8)),
        ):
            one.recurrent.set_weights(layer.get_weights())
            np.testing.assert_allclose(one(sequence[None].copy())[0], expected[row, part], **SAME)
    average = make_encoder(cell=cell, directions="average", dim=4)
    average.build((None, None))
    average.set_weights(both.get_weights())
    np.testing.assert_allclose(average(IDS), (expected[:, :4] + expected[:, 4:]) / 2, **SAME)


@pytest.mark.parametrize(
    ("cell", "directions", "pooling"),
    [("gru", "concat", "mean+max"), ("gru", "forward", "last"), ("lstm", "average", "sum"), ("lstm", "concat", "last")],
)
def test_packed_words_are_the_layers(cell: str, directions: str, pooling: str) -> None:
    keras.utils.set_random_seed(4)
    encoder = make_encoder(cell=cell, directions=directions, pooling=pooling)
    encoder(IDS)
    weights = [each.value for each in encoder.recurrent.trainable_weights]
    graph = tf.function(encoder, input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False)

    def layers(ids: tf.Tensor) -> tf.Tensor:
        states = encoder.recurrent(encoder.words(ids), mask=ids != 0)
        return encoder.head(states if pooling == "last" else encoder._pool(states, ids != 0))

    def computed(encode: Any, ids: tf.Tensor) -> list[Any]:
        with tf.GradientTape() as tape:
            embedded = encode(ids)
            loss = tf.reduce_sum(embedded * [1.0, -2.0, 3.0, -4.0, 5.0])
        return [embedded, *tape.gradient(loss, weights, unconnected_gradients="zero")]

    # With zeros between words, a row without words, and no rows at all.
    all_ids = np.array([[2, 3, 2, 5], [5, 0, 0, 0], [4, 0, 2, 2], [0, 0, 0, 0]], np.int32)
    for rows in (slice(None), slice(3, None), slice(0, 0)):
        ids = tf.constant(all_ids[rows])
        for eager, traced, expected in zip(*(computed(each, ids) for each in (encoder, graph, layers)), strict=True):
            np.testing.assert_allclose(eager, expected, **SAME)
            np.testing.assert_allclose(traced, expected, **SAME)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    ("cell", "directions", "pooling"),
    [
        ("gru", "forward", "last"),
        ("gru", "concat", "mean+max"),
        ("lstm", "average", "last"),
        ("lstm", "forward", "sum"),
    ],
)
def test_folded_words_are_the_products(cell: str, directions: str, pooling: str, dtype: str) -> None:
    encoder = make_encoder(dtype, cell=cell, directions=directions, pooling=pooling)
    encoder.build((None, None))
    generator = np.random.default_rng(1)
    for weight in encoder.trainable_weights:  # biases included, which begin at 0
        weight.assign(generator.normal(scale=0.5, size=weight.shape))

    def traced() -> Any:
        signature = [tf.TensorSpec((None, None), tf.int32)]
        return tf.function(encoder, input_signature=signature, autograph=False).get_concrete_function()

    ids = np.array([[2, 3, 2, 5], [5, 0, 0, 0], [4, 0, 2, 1], [0, 0, 0, 0]], np.int32)
    plain = traced()
    before = plain(tf.constant(ids))
    # Products of other sizes may be rounded to the next bfloat16.
    tolerance = 1e-6 if dtype == "float32" else 5e-3
    with encoder.folded():
        folded = traced()
        for rows in (ids, ids[3:], ids[:0]):
            expected = plain(tf.constant(rows))
            np.testing.assert_allclose(folded(tf.constant(rows)), expected, rtol=tolerance, atol=tolerance)
        # The graph has tables in place of what they were made of.
        kernels = [weight for weight in encoder.recurrent.weights if weight.name == "kernel"]
        replaced = {id(variable.value) for variable in (encoder.words.table, *kernels)}
        assert replaced <= {id(variable) for variable in plain.variables}
        assert not replaced & {id(variable) for variable in folded.variables}
        tables = [variable for variable in folded.variables if variable.shape[0] == 6]
        assert sum(table.numpy().nbytes for table in tables) == encoder.folded_bytes
    # Outside, weights count again.
    encoder.words.table.assign(-encoder.words.table)
    assert np.abs(encoder(ids) - before).max() > 0.01


def test_what_is_not_folded() -> None:
    composed = NGramEmbedding(6, 3, buckets=4)
    tokens = np.zeros((1, 2, 3), np.int32)
    encoder = RecurrentSentenceEncoder(composed, 5, units=4)
    encoder(tokens)
    assert encoder.folded_bytes == 0
    sizes = {}
    for cell in typing.get_args(Cell):
        encoder = make_encoder(cell=cell)
        encoder.build((None, None))
        sizes[cell] = encoder.folded_bytes
    # 6 words x 3 or 4 gates x 4 units x 4 bytes, where `packed_loop` runs.
    assert sizes == {"gru": 288, "gru-reset-before": 0, "lstm": 384, "peephole-lstm": 0}


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


KERAS = {GRU: keras.layers.GRU, LSTM: keras.layers.LSTM}
LENGTHS = np.array([4, 1, 3, 0])
STEPS, SIZE, UNITS = 4, 3, 5

#: float64: sums of some tens of terms of order 1, in another order.
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def mask_of(padding: str | None) -> np.ndarray | None:
    if padding is None:
        return None
    steps = np.arange(STEPS)
    after, before = steps < LENGTHS[:, None], steps >= STEPS - LENGTHS[:, None]
    return {"right": after, "left": before, "both": after & (steps > 0)}[padding]


def both(kind: Any, dtype: str = "float64", **options: Any) -> tuple[Any, Any]:
    """Keras' layer and ours, with the same weights, biases included."""
    theirs = KERAS[kind](UNITS, dtype=dtype, bias_initializer="normal", **options)
    ours = kind(UNITS, dtype=dtype, **options)
    for layer in (theirs, ours):
        layer.build((None, None, SIZE))
    ours.set_weights(theirs.get_weights())
    return theirs, ours


def inputs_of(dtype: str = "float64") -> tf.Tensor:
    return tf.constant(np.random.default_rng(0).normal(size=(len(LENGTHS), STEPS, SIZE)), dtype)


def outputs_and_gradients(layer: Any, x: tf.Tensor, mask: Any, training: bool, graph: bool) -> list[Any]:
    """What a layer returns, and the gradients of a random weighing of it for the input and all weights."""

    def run(x: tf.Tensor) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, mask=mask, training=training)
            outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            loss = 0.0
            for number, output in enumerate(outputs):
                weights = np.random.default_rng(number).normal(size=output.shape)
                loss += tf.reduce_sum(output * tf.constant(weights, output.dtype))
        return [*outputs, *tape.gradient(loss, [x, *(v.value for v in layer.trainable_weights)])]

    run = tf.function(run, autograph=False) if graph else run
    return [value.numpy() for value in run(x)]


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
@pytest.mark.parametrize(
    ("padding", "backwards"), [(None, False), ("right", False), ("right", True), ("left", False)], ids=str
)
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_equals_keras(kind: Any, padding: str | None, backwards: bool, training: bool) -> None:
    mask = mask_of(padding)
    options = {"return_sequences": True, "return_state": True, "go_backwards": backwards}
    theirs, ours = (
        outputs_and_gradients(layer, inputs_of(), mask, training, graph=False) for layer in both(kind, **options)
    )
    for expected, received in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(received, expected, **EXACT)


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_last_state_alone_in_a_graph(kind: Any, training: bool) -> None:
    theirs, ours = both(kind)
    expected = outputs_and_gradients(theirs, inputs_of(), mask_of("right"), training, graph=False)
    results = outputs_and_gradients(ours, inputs_of(), mask_of("right"), training, graph=True)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_a_graph_of_training_records_no_loop(kind: Any) -> None:
    # What a loop keeps of each turn for its gradient, TensorFlow puts on lists.
    def pushes(layer: Any) -> int:
        @tf.function(autograph=False)
        def step(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True))
            return tape.gradient(loss, x)

        graph = step.get_concrete_function(tf.TensorSpec((2, None, SIZE), tf.float64)).graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return sum(node.op == "TensorListPushBack" for node in nodes)

    theirs, ours = (pushes(layer) for layer in both(kind))
    assert theirs > 0 == ours


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_both_directions_with_zeros_in_padding(kind: Any) -> None:
    mask = mask_of("both")
    results = []
    for make in (KERAS[kind], kind):
        keras.utils.set_random_seed(3)
        inner = make(UNITS, return_sequences=True, dtype="float64")
        layer = keras.layers.Bidirectional(inner, dtype="float64")
        results.append(outputs_and_gradients(layer, inputs_of(), mask, True, graph=False))
    assert isinstance(layer.backward_layer, kind)
    for expected, received in zip(*results, strict=True):
        np.testing.assert_allclose(received, expected, **EXACT)
    assert not results[1][0][~mask].any()


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_bfloat16_stays_closer_to_float32_than_keras_does(kind: Any) -> None:
    exact, _ = both(kind, "float32", return_sequences=True)
    errors = []
    for make in (KERAS[kind], kind):
        layer = make(UNITS, return_sequences=True, dtype="mixed_bfloat16")
        layer.build((None, None, SIZE))
        layer.set_weights(exact.get_weights())
        x = inputs_of("float32")
        pairs = zip(
            outputs_and_gradients(layer, x, mask_of("right"), True, graph=False),
            outputs_and_gradients(exact, x, mask_of("right"), True, graph=False),
            strict=True,
        )
        errors.append(max(np.abs(np.float32(a) - b).max() / np.abs(b).max() for a, b in pairs))
    # Three products in a row, each rounded to 8 bits: 3 * 2**-8 and the rounding of what is compared.
    assert errors[1] < 0.02
    assert errors[1] <= errors[0]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GRU, {"reset_after": False}),
        (GRU, {"activation": "relu"}),
        (LSTM, {"use_bias": False}),
        (LSTM, {"recurrent_activation": "hard_sigmoid"}),
    ],
    ids=["reset-before", "relu", "no-bias", "hard-sigmoid"],
)
def test_what_the_loop_does_not_have_is_keras(kind: Any, options: dict[str, Any]) -> None:
    layers = [make(UNITS, dtype="float64", **options) for make in (KERAS[kind], kind)]
    for layer in layers:
        layer.build((None, None, SIZE))
    layers[1].set_weights(layers[0].get_weights())
    x, mask = inputs_of(), mask_of("right")
    np.testing.assert_allclose(layers[1](x, mask=mask), layers[0](x, mask=mask), **EXACT)


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
@pytest.mark.parametrize("backwards", [False, True], ids=["forward", "backwards"])
def test_with_a_gpu_no_row_is_without_steps_and_results_are_keras(kind: Any, backwards: bool, monkeypatch) -> None:
    # cuDNN stops a compiled function at a row whose mask is empty, or not a row of True before False.
    theirs, ours = both(kind, return_sequences=True, return_state=True, go_backwards=backwards)
    expected = outputs_and_gradients(theirs, inputs_of(), mask_of("right"), True, graph=False)
    keras_loop, given = KERAS[kind].inner_loop, []

    def spy(layer: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
        given.append(np.array(mask))
        return keras_loop(layer, sequences, initial_state, mask, training)

    monkeypatch.setattr(KERAS[kind], "inner_loop", spy)
    monkeypatch.setattr("vsemb.encoders.recurrent.has_gpu", lambda: True)
    received = outputs_and_gradients(ours, inputs_of(), mask_of("right"), True, graph=False)
    for one, other in zip(expected, received, strict=True):
        np.testing.assert_allclose(other, one, **EXACT)
    np.testing.assert_array_equal(given[0], np.arange(STEPS) < np.maximum(LENGTHS, 1)[:, None])


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_dropout_is_keras(kind: Any) -> None:
    layer = kind(UNITS, dropout=0.5, seed=1)
    x = inputs_of("float32")
    assert not np.allclose(layer(x, training=True), layer(x))


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_no_steps_but_one_and_unknown_sizes(kind: Any) -> None:
    _, ours = both(kind, "float32")
    signature = [tf.TensorSpec((None, None, SIZE), tf.float32)]
    run = tf.function(lambda x: ours(x, training=True), autograph=False, input_signature=signature)
    x = inputs_of("float32")
    np.testing.assert_allclose(run(x[:, :1]), ours(x[:, :1]), rtol=1e-6, atol=1e-6)
    assert run(x[:0]).shape == (0, UNITS)


@pytest.mark.parametrize("kind", [GRU, LSTM], ids=["gru", "lstm"])
def test_gradients_of_unknown_sizes_with_a_mask_and_a_state_to_begin_with(kind: Any) -> None:
    theirs, ours = both(kind)
    # Of a row without steps Keras returns zeros, and not the state that it begins with.
    x, mask = inputs_of(), tf.constant(mask_of("right") | (np.arange(STEPS) == 0))
    state = tf.constant(np.random.default_rng(7).normal(size=(len(LENGTHS), UNITS)))
    begin = [state] * (2 if kind is LSTM else 1)

    def gradients(layer: Any) -> Any:
        @tf.function(
            autograph=False,
            input_signature=[
                tf.TensorSpec((None, None, SIZE), tf.float64),
                tf.TensorSpec((None, None), tf.bool),
                *[tf.TensorSpec((None, UNITS), tf.float64)] * len(begin),
            ],
        )
        def run(x: tf.Tensor, mask: tf.Tensor, *states: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch([x, *states])
                out = layer(x, mask=mask, initial_state=list(states), training=True)
                loss = tf.reduce_sum(out * tf.cast(tf.range(UNITS), out.dtype))
            return out, *tape.gradient(loss, [x, *states, *(v.value for v in layer.trainable_weights)])

        return run(x, mask, *begin)

    for gradient, wanted in zip(gradients(ours), gradients(theirs), strict=True):
        np.testing.assert_allclose(gradient, wanted, **EXACT)


def test_is_saved_and_loaded(tmp_path) -> None:
    _, ours = both(GRU, "float32")

    class Served(tf.Module):
        @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, None, SIZE), tf.float32)])
        def run(self, x: tf.Tensor) -> tf.Tensor:
            return ours(x, training=True)

    served = Served()
    served.layer = ours
    tf.saved_model.save(served, str(tmp_path / "saved"))
    x = inputs_of("float32")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.run(x), ours(x, training=True), rtol=1e-6, atol=1e-6)
