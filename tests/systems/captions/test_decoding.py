"""Beam search against the oracle, brute force and a slow search, exported; sampling: which words, how often."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from tests.raising import raises_argument
from tests.systems.captions.next_words import HistoryModel, assert_same, brute_force, hypotheses_of, slow_beam
from vsemb.systems.captions.decoding import Sampler, SearchOptions, beam_search, sample


def compiled(model: HistoryModel, **options):
    """Returns a search in a graph, as all real callers have it; rows are not known there."""

    @tf.function(autograph=False, input_signature=[{"history": tf.TensorSpec([None], tf.int32)}])
    def run(state):
        return beam_search(model.step, state, SearchOptions(**options), rows=tf.shape(state["history"])[0])

    return lambda rows: run(model.start(rows))


def search(model: HistoryModel, rows, **options):
    """The same, at once: a graph takes longer to trace than so small a search to run."""
    return beam_search(model.step, model.start(rows), SearchOptions(**options), rows=len(rows))


@pytest.mark.parametrize(("beam", "wanted"), [(1, "greedy_beam1"), (2, "beam2"), (3, "beam3"), (3**5, "exhaustive")])
def test_the_oracle(beam, wanted):
    given = oracle("beam_search_markov")
    symbols, table = given.inputs["symbols"], given.inputs["transition"]
    # START has id 0 as an input, where END has it as a choice.
    rows = [table["<start>" if symbol == "<end>" else symbol] for symbol in symbols]
    log_probs = tf.math.log(tf.constant(rows, tf.float32))
    hypotheses = beam_search(
        lambda state, words: (tf.gather(log_probs, words), state),
        {},
        SearchOptions(beam=beam, max_words=5, forbidden=()),
        rows=1,
    )
    expected = given.expected[wanted]
    tokens = hypotheses.tokens[0, 0].numpy()
    assert [symbols[token] for token in tokens[: len(expected["tokens"])]] == expected["tokens"]
    assert hypotheses.finished[0, 0] and hypotheses.exists[0, 0]
    np.testing.assert_allclose(hypotheses.log_probs[0, 0], expected["logprob"], **TOLERANCE)
    np.testing.assert_array_equal(hypotheses.scores, hypotheses.log_probs)


@pytest.mark.parametrize(
    ("size", "max_words", "length_penalty", "never", "options"),
    [
        (3, 1, 0.0, 0.0, {}),
        (3, 6, 0.0, 0.0, {"forbidden": ()}),
        (4, 4, 0.0, 0.0, {"forbidden": ()}),
        (5, 4, 0.7, 0.0, {}),
        (4, 4, 1.0, 0.3, {"forbidden": (), "min_words": 0}),
        (5, 4, 0.5, 0.5, {"forbidden": (1, 3), "min_words": 2}),
        (7, 3, 0.0, 0.1, {"forbidden": ()}),
    ],
)
def test_full_width_is_brute_force(size, max_words, length_penalty, never, options):
    model = HistoryModel(size, 1, never)
    options = {"max_words": max_words, "length_penalty": length_penalty, **options}
    width = size**max_words
    hypotheses = search(model, range(5), beam=width, n_best=width, **options)
    assert not np.isnan(hypotheses.scores).any()
    for row in range(5):
        assert_same(hypotheses_of(hypotheses, row), brute_force(model, row, **options))


@pytest.mark.parametrize("beam", [1, 2, 3, 5, 8])
def test_narrow_beams_keep_to_the_rule(beam):
    model = HistoryModel(7, 3, never=0.2)
    for options in (
        {"max_words": 8},
        {"max_words": 5, "min_words": 3, "forbidden": (), "length_penalty": 1.0},
    ):
        find = compiled(model, beam=beam, n_best=beam, **options) if beam == 3 else None
        hypotheses = find(range(20)) if find else search(model, range(20), beam=beam, n_best=beam, **options)
        for row in range(20):
            assert_same(hypotheses_of(hypotheses, row), slow_beam(model, row, beam, **options))


def test_a_beam_of_one_takes_the_likeliest_word():
    model = HistoryModel(9, 4)
    hypotheses = search(model, range(30), beam=1, max_words=12, min_words=0, forbidden=())
    for row in range(30):
        words: tuple[int, ...] = ()
        while len(words) < 12 and (word := int(model.next(row, words).argmax())):
            words += (word,)
        assert hypotheses_of(hypotheses, row)[0].words == words


def test_the_best_are_a_prefix_of_all():
    model = HistoryModel(9, 5)
    everything = search(model, range(6), beam=7, n_best=7, max_words=6, length_penalty=0.6)
    some = search(model, range(6), beam=7, n_best=3, max_words=6, length_penalty=0.6)
    for all_, few in zip(everything, some, strict=True):
        np.testing.assert_array_equal(all_[:, :3], few)


def test_what_was_cut_stands_behind_what_is_finished():
    # A word is always likelier than END, so that unfinished ones have the better sums.
    log_probs = tf.math.log([[0.1, 0.0, 0.9]] * 3)
    options = SearchOptions(beam=4, n_best=4, max_words=3)
    hypotheses = beam_search(lambda state, words: (tf.gather(log_probs, words), state), {}, options, rows=1)
    assert hypotheses.finished.numpy().tolist() == [[True, True, False, False]]
    assert hypotheses.tokens.numpy().tolist() == [[[2, 0, 0], [2, 2, 0], [2, 2, 2], [0, 0, 0]]]
    np.testing.assert_allclose(tf.exp(hypotheses.log_probs), [[0.09, 0.081, 0.729, 0.0]], atol=1e-6)


def test_ties_go_to_who_came_first_and_then_to_the_smaller_id():
    log_probs = tf.math.log(tf.fill([4, 4], 0.25))
    options = SearchOptions(beam=3, n_best=3, max_words=2)
    hypotheses = beam_search(lambda state, words: (tf.gather(log_probs, words), state), {}, options, rows=1)
    assert hypotheses.tokens.numpy().tolist() == [[[2, 0], [2, 2], [2, 3]]]


def test_rows_do_not_depend_on_each_other():
    model = HistoryModel(11, 6, never=0.2)
    found_of = compiled(model, beam=4, n_best=4, max_words=9)
    together = found_of(range(12))
    for row in range(12):
        for all_, alone in zip(together, found_of([row]), strict=True):
            np.testing.assert_array_equal(all_[row], alone[0])


def test_no_rows():
    model = HistoryModel(5, 0)
    options = {"beam": 3, "n_best": 2, "max_words": 4}
    for hypotheses in (search(model, [], **options), compiled(model, **options)([])):
        assert hypotheses.tokens.shape == (0, 2, 4)
        assert all(values.shape == (0, 2) for values in hypotheses[1:])


def test_a_model_that_has_nothing_to_say():
    nothing = tf.fill([4, 3], -np.inf)
    options = SearchOptions(beam=2, n_best=2)
    hypotheses = beam_search(lambda state, words: (nothing[: tf.size(words)], state), {}, options, rows=2)
    assert not hypotheses.exists.numpy().any() and not hypotheses.finished.numpy().any()
    assert not hypotheses.tokens.numpy().any()
    np.testing.assert_array_equal(hypotheses.log_probs, np.full((2, 2), -np.inf))
    np.testing.assert_array_equal(hypotheses.scores, np.full((2, 2), -np.inf))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"beam": 0}, "beam"),
        ({"max_words": 0}, "max_words"),
        ({"beam": 3, "n_best": 4}, "n_best"),
        ({"n_best": 0}, "n_best"),
        ({"max_words": 3, "min_words": 4}, "min_words"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"length_penalty": float("inf")}, "length_penalty"),
        ({"length_penalty": -0.5}, "length_penalty"),
        ({"forbidden": (1, 0)}, "forbidden"),
    ],
)
def test_numbers_that_are_not_allowed(options, name):
    with raises_argument(name):
        SearchOptions(**options)


def test_states_of_any_structure_follow_their_hypotheses():
    model = HistoryModel(7, 8)

    def step(state, words):
        (inner,) = state["deep"]
        tf.debugging.assert_equal(tf.cast(inner["history"], tf.float64), state["copy"][:, 1, 0])
        log_probs, inner = model.step(inner, words)
        copy = tf.cast(inner["history"], tf.float64)[:, None, None] * tf.ones([2, 1], tf.float64)
        return log_probs, {"copy": copy, "deep": (inner,)}

    rows = range(4)
    first = model.start(rows)
    copy = tf.tile(tf.cast(first["history"], tf.float64)[:, None, None], [1, 2, 1])
    state = {"copy": copy, "deep": (first,)}
    hypotheses = beam_search(step, state, SearchOptions(beam=3, n_best=3, max_words=6), rows=4)
    for row in rows:
        assert_same(hypotheses_of(hypotheses, row), slow_beam(model, row, 3, max_words=6))


def test_it_can_be_exported_and_holds_core_operations_only(tmp_path):
    model = HistoryModel(7, 9)

    class Exported(tf.Module):
        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int32)])
        def search(self, history):
            options = SearchOptions(beam=3, n_best=2, max_words=5)
            return beam_search(model.step, {"history": history}, options, rows=tf.shape(history)[0])._asdict()

    tf.saved_model.save(Exported(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    wanted = search(model, range(6), beam=3, n_best=2, max_words=5)
    got = loaded.search(tf.range(6))
    for name, values in wanted._asdict().items():
        np.testing.assert_array_equal(got[name], values)
    assert loaded.search(tf.zeros([0], tf.int32))["tokens"].shape == (0, 2, 5)
    graph = loaded.search.concrete_functions[0].graph.as_graph_def()
    nodes = itertools.chain(graph.node, *(function.node_def for function in graph.library.function))
    assert not {node.op for node in nodes} & {"PyFunc", "EagerPyFunc", "PyFuncStateless"}


PROBABILITIES = np.array([0.05, 0.1, 0.5, 0.05, 0.3], np.float32)


def draws(sampler: Sampler, rows: int = 4000) -> np.ndarray:
    """The share of each word among many draws."""
    drawn = sampler(tf.tile(tf.math.log(PROBABILITIES)[None], [rows, 1]))
    assert drawn.dtype == tf.int32 and drawn.shape == (rows,)
    return np.bincount(drawn, minlength=len(PROBABILITIES)) / rows


@pytest.mark.parametrize(
    ("rule", "temperature", "wanted"),
    [
        ("greedy", 1.0, [0, 0, 1, 0, 0]),
        ("random", 1.0, PROBABILITIES),
        ("random", 0.5, PROBABILITIES**2 / np.sum(PROBABILITIES**2)),
        ("top-k=1", 1.0, [0, 0, 1, 0, 0]),
        ("top-k=2", 1.0, [0, 0, 5 / 8, 0, 3 / 8]),
        ("top-k=5", 1.0, PROBABILITIES),
        # 0.5 alone is not more than 0.6, 0.5 + 0.3 is.
        ("top-p=0.6", 1.0, [0, 0, 5 / 8, 0, 3 / 8]),
        ("top-p=0.3", 1.0, [0, 0, 1, 0, 0]),
        ("top-p=1", 1.0, PROBABILITIES),
    ],
)
def test_words_are_drawn_as_often_as_the_rule_says(rule, temperature, wanted):
    drawn = draws(Sampler.parse(rule, temperature=temperature, seed=3))
    # Four standard deviations of a share of 4,000 draws are 0.032 at most; what is cut off is never drawn.
    np.testing.assert_allclose(drawn, wanted, atol=0.032)
    assert not drawn[np.asarray(wanted) == 0].any()


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "beam",
        "greedy=1",
        "random=",
        "top-k",
        "top-k=0",
        "top-k=2.5",
        "top-k=inf",
        "top-k=x",
        "top-p=0",
        "top-p=1.1",
    ],
)
def test_rules_that_are_none(rule):
    with raises_argument("sample"):
        Sampler.parse(rule)


@pytest.mark.parametrize("temperature", [0.0, 1e-40, -1.0, float("inf"), float("nan")])
def test_temperatures_that_are_none(temperature):
    with raises_argument("temperature"):
        Sampler.parse("random", temperature=temperature)


def test_more_of_the_likeliest_than_there_are_words():
    with raises_argument("sample"):
        draws(Sampler.parse("top-k=6"))


def compiled_sample(model: HistoryModel, sampler: Sampler, **options):
    @tf.function(autograph=False, input_signature=[{"history": tf.TensorSpec([None], tf.int32)}])
    def run(state):
        return sample(model.step, state, sampler, SearchOptions(**options), rows=tf.shape(state["history"])[0])

    return lambda rows: run(model.start(rows))


def test_greedy_is_a_beam_of_one_and_finds_one():
    model = HistoryModel(7, 1)
    hypotheses = compiled_sample(model, Sampler("greedy"), n_best=3, max_words=6)(range(10))
    assert hypotheses.exists.numpy().tolist() == [[True, False, False]] * 10
    for row in range(10):
        assert_same(hypotheses_of(hypotheses, row), slow_beam(model, row, 1, max_words=6))


def test_what_is_said_of_samples_is_the_models():
    model = HistoryModel(7, 2, never=0.2)
    options = {"beam": 8, "max_words": 6, "min_words": 2, "length_penalty": 0.7}
    hypotheses = compiled_sample(model, Sampler("random", temperature=2.0, seed=5), n_best=8, **options)(range(20))
    several = set()
    for row in range(20):
        samples = hypotheses_of(hypotheses, row)
        for one in samples:
            ids = (*one.words, 0) if one.finished else one.words
            wanted = sum(model.next(row, ids[:place])[word] for place, word in enumerate(ids))
            np.testing.assert_allclose(one.log_prob, wanted, atol=1e-5)
            assert 1 not in ids and len(one.words) >= 2 and one.finished == (len(one.words) < 6)
        keys = [(not one.finished, -one.score(0.7)) for one in samples]
        assert keys == sorted(keys)
        several.add(len({one.words for one in samples}))
    assert max(several) > 1
    np.testing.assert_array_equal(hypotheses.exists, hypotheses.log_probs > -np.inf)


def test_a_seed_gives_the_same_again():
    model = HistoryModel(7, 3)

    def twice(seed: int) -> list[np.ndarray]:
        run = compiled_sample(model, Sampler.parse("top-p=0.9", seed=seed), n_best=5, max_words=6)
        return [run(range(10)).tokens.numpy() for _ in range(2)]

    first, second = twice(4), twice(4)
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).any()
    assert (first[0] != twice(5)[0]).any()


def test_samples_of_no_rows_and_nothing_to_say():
    model = HistoryModel(7, 3)
    hypotheses = compiled_sample(model, Sampler("random"), n_best=2, max_words=4)([])
    assert hypotheses.tokens.shape == (0, 2, 4) and hypotheses.log_probs.shape == (0, 2)
    nothing = tf.fill([2, 3], -np.inf)
    for rule in ("greedy", "random", "top-k=2", "top-p=0.5"):
        hypotheses = sample(
            lambda state, words: (nothing, state), {}, Sampler.parse(rule), SearchOptions(max_words=3), rows=2
        )
        assert not hypotheses.exists.numpy().any() and not hypotheses.tokens.numpy().any()
        assert not hypotheses.finished.numpy().any()
