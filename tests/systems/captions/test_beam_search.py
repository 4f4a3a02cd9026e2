"""Beam search against the oracle, brute force and a slow search; in graph, batched, exported."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.oracles import TOLERANCE, oracle
from tests.systems.captions.next_words import HistoryModel, as_found, assert_same, brute_force, slow_beam
from vsemb.errors import InvalidArgumentError
from vsemb.systems.captions.beam_search import SearchOptions, beam_search


def compiled(model: HistoryModel, **options):
    """Returns a search in a graph, as all real callers have it; rows are not known there."""

    @tf.function(input_signature=[{"history": tf.TensorSpec([None], tf.int32)}])
    def run(state):
        return beam_search(model.step, state, SearchOptions(**options), rows=tf.shape(state["history"])[0])

    return lambda rows: run(model.start(rows))


def search(model: HistoryModel, rows, **options):
    return compiled(model, **options)(rows)


@pytest.mark.parametrize(("beam", "wanted"), [(1, "greedy_beam1"), (2, "beam2"), (3, "beam3"), (3**5, "exhaustive")])
def test_the_oracle(beam, wanted):
    given = oracle("beam_search_markov")
    symbols, table = given.inputs["symbols"], given.inputs["transition"]
    # START has id 0 as an input, where END has it as a choice.
    rows = [table["<start>" if symbol == "<end>" else symbol] for symbol in symbols]
    log_probs = tf.math.log(tf.constant(rows, tf.float32))
    found = beam_search(
        lambda state, words: (tf.gather(log_probs, words), state),
        {},
        SearchOptions(beam=beam, max_words=5, forbidden=()),
        rows=1,
    )
    expected = given.expected[wanted]
    tokens = found.tokens[0, 0].numpy()
    assert [symbols[token] for token in tokens[: len(expected["tokens"])]] == expected["tokens"]
    assert found.finished[0, 0] and found.exists[0, 0]
    np.testing.assert_allclose(found.log_probs[0, 0], expected["logprob"], **TOLERANCE)
    np.testing.assert_array_equal(found.scores, found.log_probs)


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
    found = search(model, range(5), beam=width, n_best=width, **options)
    assert not np.isnan(found.scores).any()
    for row in range(5):
        assert_same(as_found(found, row), brute_force(model, row, **options))


@pytest.mark.parametrize("beam", [1, 2, 3, 5, 8])
def test_narrow_beams_keep_to_the_rule(beam):
    model = HistoryModel(7, 3, never=0.2)
    for options in (
        {"max_words": 8},
        {"max_words": 5, "min_words": 3, "forbidden": (), "length_penalty": 1.0},
    ):
        found = search(model, range(20), beam=beam, n_best=beam, **options)
        for row in range(20):
            assert_same(as_found(found, row), slow_beam(model, row, beam, **options))


def test_a_beam_of_one_takes_the_likeliest_word():
    model = HistoryModel(9, 4)
    found = search(model, range(30), beam=1, max_words=12, min_words=0, forbidden=())
    for row in range(30):
        words: tuple[int, ...] = ()
        while len(words) < 12 and (word := int(model.next(row, words).argmax())):
            words += (word,)
        assert as_found(found, row)[0].words == words


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
    found = beam_search(lambda state, words: (tf.gather(log_probs, words), state), {}, options, rows=1)
    assert found.finished.numpy().tolist() == [[True, True, False, False]]
    assert found.tokens.numpy().tolist() == [[[2, 0, 0], [2, 2, 0], [2, 2, 2], [0, 0, 0]]]
    np.testing.assert_allclose(tf.exp(found.log_probs), [[0.09, 0.081, 0.729, 0.0]], atol=1e-6)


def test_ties_go_to_who_came_first_and_then_to_the_smaller_id():
    log_probs = tf.math.log(tf.fill([4, 4], 0.25))
    options = SearchOptions(beam=3, n_best=3, max_words=2)
    found = beam_search(lambda state, words: (tf.gather(log_probs, words), state), {}, options, rows=1)
    assert found.tokens.numpy().tolist() == [[[2, 0], [2, 2], [2, 3]]]


def test_rows_do_not_depend_on_each_other():
    model = HistoryModel(11, 6, never=0.2)
    found_of = compiled(model, beam=4, n_best=4, max_words=9)
    together = found_of(range(12))
    for row in range(12):
        for all_, alone in zip(together, found_of([row]), strict=True):
            np.testing.assert_array_equal(all_[row], alone[0])


def test_no_rows():
    model = HistoryModel(5, 0)
    for found in (
        search(model, [], beam=3, n_best=2, max_words=4),
        beam_search(model.step, model.start([]), SearchOptions(beam=3, n_best=2, max_words=4), rows=0),
    ):
        assert found.tokens.shape == (0, 2, 4)
        assert all(values.shape == (0, 2) for values in found[1:])


def test_a_model_that_has_nothing_to_say():
    nothing = tf.fill([4, 3], -np.inf)
    options = SearchOptions(beam=2, n_best=2)
    found = beam_search(lambda state, words: (nothing[: tf.size(words)], state), {}, options, rows=2)
    assert not found.exists.numpy().any() and not found.finished.numpy().any()
    assert not found.tokens.numpy().any()
    np.testing.assert_array_equal(found.log_probs, np.full((2, 2), -np.inf))
    np.testing.assert_array_equal(found.scores, np.full((2, 2), -np.inf))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam=0"),
        ({"max_words": 0}, "max_words=0"),
        ({"beam": 3, "n_best": 4}, "n_best=4.*from 1 to the beam, 3"),
        ({"n_best": 0}, "n_best=0"),
        ({"max_words": 3, "min_words": 4}, "min_words=4.*from 0 to max_words, 3"),
        ({"length_penalty": float("nan")}, "length_penalty=nan.*finite number >= 0"),
        ({"length_penalty": float("inf")}, "length_penalty=inf"),
        ({"length_penalty": -0.5}, "length_penalty=-0.5"),
        ({"forbidden": (1, 0)}, "0 is END"),
    ],
)
def test_numbers_that_are_not_allowed(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
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
    found = beam_search(step, state, SearchOptions(beam=3, n_best=3, max_words=6), rows=4)
    for row in rows:
        assert_same(as_found(found, row), slow_beam(model, row, 3, max_words=6))


def test_it_can_be_exported_and_holds_core_operations_only(tmp_path):
    model = HistoryModel(7, 9)

    class Exported(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
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
