"""Kiros' language models: oracles, the equations as loops, gradients, step by step and saving."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.contract import BFLOAT16, SAME, check_config
from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from vsemb.systems.captions.next_word import NextWordCrossEntropy, NextWordModel
from vsemb.systems.language.additive import Additive
from vsemb.systems.language.log_bilinear import LogBilinear
from vsemb.systems.language.multiplicative import Multiplicative
from vsemb.systems.language.structure_content import StructureContent

WORDS, DIM, CONTEXT, CONTENT, FACTORS, TAGS, STRUCTURE = 7, 4, 2, 5, 3, 4, 2
KINDS = ("log-bilinear", "additive", "multiplicative", "sc-nlm")


def make_model(kind: str, **options) -> NextWordModel:
    keras.utils.set_random_seed(1)
    options = {"dim": DIM, "context": CONTEXT, "init_scale": 1.0} | options
    if kind != "log-bilinear":
        options = {"content_dim": CONTENT} | options
    if kind in ("multiplicative", "sc-nlm"):
        options = {"factors": FACTORS} | options
    if kind == "sc-nlm":
        options = {"tags": TAGS, "structure": STRUCTURE} | options
    classes = dict(zip(KINDS, (LogBilinear, Additive, Multiplicative, StructureContent), strict=True))
    model = classes[kind](WORDS, **options)
    model.build()
    generator = np.random.default_rng(2)
    for weight in model.weights:
        if "bias" in weight.name:
            weight.assign(generator.normal(size=weight.shape))
    return model


def make_inputs(rows: int = 4, steps: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, steps + 1, rows)
    inside = np.arange(steps) < lengths[:, None]
    return {
        "text": np.where(inside, generator.integers(1, WORDS, (rows, steps)), 0).astype(np.int32),
        "tags": np.where(inside, generator.integers(1, TAGS + 1, (rows, steps)), 0).astype(np.int32),
        "content": generator.normal(size=(rows, CONTENT)).astype(np.float32),
    }


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


class Loop:
    """The equations as the paper writes them, one word after the other, in float64."""

    def __init__(self, model: NextWordModel, kind: str) -> None:
        self.kind = kind
        self.weights = {weight.path: weight.numpy().astype(np.float64) for weight in model.trainable_variables}

    def __getitem__(self, name: str) -> np.ndarray:
        (weight,) = [value for path, value in self.weights.items() if path.endswith(name)]
        return weight

    def probabilities(self, context, content=None, tags=None) -> np.ndarray:
        """Of every word after `context`, farthest word first; `tags` are those of the word and the next."""
        maps = [kernel.T for kernel in self["context_kernels"]]  # C^(i)
        table = self["words/table"]
        if self.kind in ("log-bilinear", "additive"):
            predicted = sum(c @ table[word] for c, word in zip(maps, context, strict=True))
            if self.kind == "additive":
                predicted = predicted + self["content_kernel"].T @ content
            return softmax(table @ predicted + self["/bias"])
        wfk, wfv, wfd = self["dim_factors"], table.T, self["attribute_factors"].T
        folded = wfk.T @ wfv  # E
        predicted = sum(c @ folded[:, word] for c, word in zip(maps, context, strict=True))
        if self.kind == "sc-nlm":
            total = self["content_kernel"].T @ content + self["attribute_bias"]
            for kernel, tag in zip(self["structure_kernels"], tags, strict=True):
                total = total + kernel.T @ self["tag_vectors/table"][tag]
            content = np.maximum(total, 0)
        factors = (wfk @ predicted) * (wfd @ content)
        return softmax(wfv.T @ factors + self["/bias"])

    def log_likelihoods(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        rows, steps = inputs["text"].shape
        result = np.zeros((rows, steps + 1))
        for row in range(rows):
            words = [word for word in inputs["text"][row].tolist() if word]
            read = [0] * CONTEXT + words
            tags = [*inputs["tags"][row].tolist(), *[0] * (STRUCTURE + 1)]
            for place, target in enumerate([*words, 0]):
                shares = self.probabilities(
                    read[place : place + CONTEXT],
                    inputs["content"][row].astype(np.float64),
                    tags[place : place + STRUCTURE + 1],
                )
                result[row, place] = np.log(shares[target])
        return result


def assign(model: NextWordModel, values: dict[str, list]) -> None:
    for name, value in values.items():
        (weight,) = [weight for weight in model.weights if weight.path.endswith(name)]
        weight.assign(value)


def test_log_bilinear_oracle() -> None:
    given, expected = oracle("log_bilinear").inputs, oracle("log_bilinear").expected
    model = LogBilinear(4, dim=2, context=2)
    model.build()
    kernels = np.transpose([given["C1"], given["C2"]], (0, 2, 1))
    assign(model, {"words/table": given["R"], "context_kernels": kernels, "/bias": given["b"]})
    logits = model({"text": np.array([given["context"]])})[0, -1]
    np.testing.assert_allclose(softmax(logits.numpy()), expected["p"], **TOLERANCE)


def test_additive_by_hand() -> None:
    # One context word w = (1, 2), C = identity, u = 3 and C^(m) = (1, -1): r = (1, 2) + 3 (1, -1) = (4, -1).
    # The vectors of END, unknown and the word are (0, 0), (1, 0) and (1, 2), so that the logits are 0, 4 and 2.
    model = Additive(3, dim=2, context=1, content_dim=1)
    model.build()
    table = [[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]]
    assign(model, {"words/table": table, "context_kernels": [np.eye(2)], "content_kernel": [[1.0, -1.0]]})
    logits = model({"text": np.array([[2]]), "content": np.array([[3.0]], np.float32)})[0, -1]
    np.testing.assert_allclose(logits, [0.0, 4.0, 2.0], **TOLERANCE)


def test_content_shifts_log_odds_alike_after_every_context() -> None:
    inputs = make_inputs()
    other = {**inputs, "content": inputs["content"] + 1}
    for kind in ("additive", "multiplicative"):
        model = make_model(kind)
        shift = model(other).numpy() - model(inputs).numpy()
        same = np.allclose(shift, shift[:, :1], rtol=1e-4, atol=1e-4)
        assert same == (kind == "additive")


@pytest.mark.parametrize("kind", ["multiplicative", "sc-nlm"])
def test_sc_nlm_oracle(kind: str) -> None:
    given, expected = oracle("sc_nlm_step").inputs, oracle("sc_nlm_step").expected
    text = np.array([given["context"]])
    common = {
        "words/table": np.transpose(given["Wfv"]),
        "dim_factors": given["Wfk"],
        "attribute_factors": np.transpose(given["Wfd"]),
        "context_kernels": np.transpose([given["C1"], given["C2"]], (0, 2, 1)),
        "/bias": given["b"],
    }
    if kind == "multiplicative":
        model = Multiplicative(4, dim=2, context=2, content_dim=2, factors=3)
        model.build()
        assign(model, common)
        logits = model({"text": text, "content": np.array([given["u"]], np.float32)})[0, -1]
        np.testing.assert_allclose(softmax(logits.numpy()), expected["p_multiplicative_only"], **TOLERANCE)
        return
    model = StructureContent(4, dim=2, context=2, content_dim=2, tags=2, structure=1, factors=3)
    model.build()
    assign(model, common)
    assign(
        model,
        {
            "tag_vectors/table": [[0.0, 0.0], given["t_n"], given["t_n1"]],
            "structure_kernels": np.transpose([given["T_n"], given["T_n1"]], (0, 2, 1)),
            "content_kernel": np.transpose(given["T_u"]),
            "attribute_bias": given["bias_u"],
        },
    )
    # The third word has the tag t_n and the fourth t_(n+1).
    inputs = {"content": np.array([given["u"]], np.float32), "tags": np.array([[2, 2, 1, 2]])}
    logits = model({"text": np.array([[*given["context"], 1, 1]]), **inputs})[0, 2]
    np.testing.assert_allclose(softmax(logits.numpy()), expected["p_sc_nlm"], **TOLERANCE)
    state = model.start(inputs)
    for word in [0, *given["context"]]:
        log_probs, state = model.step(state, np.array([word]))
    np.testing.assert_allclose(np.exp(log_probs[0]), expected["p_sc_nlm"], **TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_equals_the_loop(kind: str) -> None:
    model = make_model(kind)
    for seed in range(3):
        inputs = make_inputs(seed=seed)
        expected = Loop(model, kind).log_likelihoods(inputs)
        np.testing.assert_allclose(model.log_likelihoods(inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_those_of_the_loop(kind: str) -> None:
    model, inputs = make_model(kind), make_inputs(rows=2, steps=3)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model.log_likelihoods(inputs))
    gradients = tape.gradient(total, [weight.value for weight in model.trainable_variables])
    loop, small = Loop(model, kind), 1e-5
    for weight, gradient in zip(model.trainable_variables, gradients, strict=True):
        # A word's rows come from its contexts and from the softmax; they are one gradient.
        computed = tf.convert_to_tensor(gradient).numpy()
        numeric = np.zeros(weight.shape)
        values = loop.weights[weight.path]
        for place in np.ndindex(*weight.shape):
            kept = values[place]
            sides = []
            for change in (small, -small):
                values[place] = kept + change
                sides.append(loop.log_likelihoods(inputs).sum())
            values[place] = kept
            numeric[place] = (sides[0] - sides[1]) / (2 * small)
        # float32 against central differences in float64, gradients of the order of 1.
        np.testing.assert_allclose(computed, numeric, rtol=1e-3, atol=1e-4, err_msg=weight.path)


@pytest.mark.parametrize("kind", KINDS)
def test_word_by_word_is_the_same(kind: str) -> None:
    model, inputs = make_model(kind), make_inputs()
    expected = tf.nn.log_softmax(model(inputs)).numpy()
    state = model.start({name: value for name, value in inputs.items() if name != "text"})
    assert all(value.shape[0] == 4 for value in state.values())
    kept = state
    for place in range(6):
        words = inputs["text"][:, place - 1] if place else np.zeros(4, np.int32)
        log_probs, state = model.step(state, words)
        assert log_probs.dtype == tf.float32
        for name, value in state.items():
            assert value.shape == kept[name].shape and value.dtype == kept[name].dtype
        np.testing.assert_allclose(log_probs, expected[:, place], **SAME)


def test_longer_than_wanted_sees_the_end_of_the_tags() -> None:
    model, inputs = make_model("sc-nlm"), make_inputs(rows=3, steps=6)
    short = {**inputs, "tags": inputs["tags"][:, :2]}
    padded = {**inputs, "tags": np.pad(short["tags"], [(0, 0), (0, 4)])}
    expected = tf.nn.log_softmax(model(padded)).numpy()
    state = model.start({"content": inputs["content"], "tags": short["tags"]})
    for place in range(7):
        words = inputs["text"][:, place - 1] if place else np.zeros(3, np.int32)
        log_probs, state = model.step(state, words)
        np.testing.assert_allclose(log_probs, expected[:, place], **SAME)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_other_rows_change_nothing(kind: str) -> None:
    model, inputs = make_model(kind), make_inputs()
    expected = model.log_likelihoods(inputs).numpy()
    wider = {name: np.pad(inputs[name], [(0, 0), (0, 3)]) for name in ("text", "tags")}
    log_probs = model.log_likelihoods({**inputs, **wider}).numpy()
    np.testing.assert_allclose(log_probs[:, :6], expected, **SAME)
    assert not log_probs[:, 6:].any()
    order = np.array([2, 0, 3, 1])
    shuffled = model.log_likelihoods({name: value[order] for name, value in inputs.items()})
    np.testing.assert_allclose(shuffled, expected[order], **SAME)
    one = model.log_likelihoods({name: value[:1] for name, value in inputs.items()})
    np.testing.assert_allclose(one, expected[:1], **SAME)
    none = model.log_likelihoods({name: value[:0] for name, value in inputs.items()})
    assert none.shape == (0, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_add_up_and_only_the_context_counts(kind: str) -> None:
    model, inputs = make_model(kind), make_inputs(rows=2, steps=5)
    inputs["text"] = np.array([[2, 3, 4, 5, 6], [6, 3, 4, 5, 6]], np.int32)
    inputs = {name: value[[0, 0]] if name != "text" else value for name, value in inputs.items()}
    logits = model(inputs).numpy()
    np.testing.assert_allclose(np.exp(tf.nn.log_softmax(logits)).sum(-1), 1, rtol=1e-5)
    # The first words differ, which two places later is forgotten.
    assert not np.allclose(logits[0, 1:3], logits[1, 1:3])
    np.testing.assert_allclose(logits[0, 3:], logits[1, 3:], **SAME)


def test_content_and_tags_say_what_is_written() -> None:
    inputs = make_inputs()
    other = {**inputs, "content": inputs["content"][::-1]}
    ahead = {**inputs, "tags": np.where(inputs["tags"] > 0, inputs["tags"] % TAGS + 1, 0)}
    for kind in KINDS:
        model = make_model(kind)
        expected = model(inputs).numpy()
        assert np.allclose(model(other), expected) == (kind == "log-bilinear")
        assert np.allclose(model(ahead), expected) == (kind != "sc-nlm")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_is_saved(kind: str, tmp_path) -> None:
    model = make_model(kind, dropout=0.1, word_dropout=0.1, l2=1e-6)
    check_config(model)
    inputs = make_inputs(rows=8)
    model.compile(keras.optimizers.Adam(0.03), loss=NextWordCrossEntropy())
    data = tf.data.Dataset.from_tensors(inputs).repeat(40)
    losses = model.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]
    assert losses[1] < 0.75 * losses[0]
    expected = model(inputs).numpy()
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(reloaded) is type(model)
    np.testing.assert_allclose(reloaded(inputs), expected, **SAME)
    model.save_weights(tmp_path / "model.weights.h5")
    other = make_model(kind, dropout=0.1, word_dropout=0.1)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other(inputs), expected, **SAME)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_precision(kind: str) -> None:
    model, inputs = make_model(kind), make_inputs()
    mixed = make_model(kind, dtype="mixed_bfloat16")
    mixed.set_weights(model.get_weights())
    logits = mixed(inputs)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, model(inputs), **BFLOAT16)
    state = mixed.start(inputs)
    log_probs, _ = mixed.step(state, np.zeros(4, np.int32))
    np.testing.assert_allclose(log_probs, tf.nn.log_softmax(logits)[:, 0], **BFLOAT16)


def test_the_bias_starts_at_frequencies() -> None:
    model = make_model("log-bilinear")
    model.set_frequencies(np.array([10, 0, 20, 6, 4, 5, 5]))
    np.testing.assert_allclose(model.output_bias.numpy()[[0, 2, 3]], np.log([10 / 20, 1, 6 / 20]), rtol=1e-5)
    with raises_argument("counts"):
        model.set_frequencies(np.ones(3))


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("log-bilinear", "dim", 0),
        ("log-bilinear", "context", 0),
        ("log-bilinear", "word_dropout", 1.0),
        ("additive", "content_dim", 0),
        ("multiplicative", "content_dim", 0),
        ("multiplicative", "factors", 0),
        ("sc-nlm", "tags", 0),
        ("sc-nlm", "structure", -1),
    ],
)
def test_refusals(kind: str, option: str, value: float) -> None:
    with raises_argument(option):
        make_model(kind, **{option: value})


def test_nothing_says_how_many_rows_there_are() -> None:
    with raises_argument("inputs"):
        make_model("log-bilinear").start({})
