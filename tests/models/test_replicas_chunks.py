"""Two replicas, in chunks and blocks, do what one device does with the whole batch at once."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.replica_cases import (
    CHUNKS,
    MORE_CHUNKS,
    STEPS,
    Results,
    check_different,
    check_same,
    run,
    with_everything_random,
)
from vsemb.models import in_batch

#: Case -> how many axes the tensors have that replicas gather for the loss.
Ranks = dict[str, set[int]]


@pytest.fixture(scope="module")
def results_and_ranks(two_devices: tf.distribute.Strategy) -> tuple[Results, Ranks]:
    return run_chunks(CHUNKS, two_devices)


def run_chunks(cases: dict[str, Any], strategy: tf.distribute.Strategy) -> tuple[Results, Ranks]:
    results: Results = {}
    ranks: Ranks = {}
    gather = in_batch.gather_across_replicas
    for name, (case, options) in cases.items():
        one, seen = run(case), ranks.setdefault(name, set())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(in_batch, "gather_across_replicas", lambda x, s=seen: s.add(len(x.shape)) or gather(x))
            results[name] = one, run(functools.partial(case, **options), strategy)
    return results, ranks


@pytest.fixture(scope="module")
def results(results_and_ranks: tuple[Results, Ranks]) -> Results:
    return results_and_ranks[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", CHUNKS)
def test_two_replicas_equal_one_device(results: Results, case: str) -> None:
    check_same(results, case)


@pytest.mark.slow
def test_the_cases_are_no_trivial_ones(results: Results) -> None:
    check_different(results)


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_CHUNKS)
def test_more_losses_and_their_evaluation(two_devices: tf.distribute.Strategy, case: str) -> None:
    results, _ = run_chunks({case: MORE_CHUNKS[case]}, two_devices)
    check_same(results, case)
    assert "val_loss" in results[case][1]


@pytest.mark.slow
@pytest.mark.parametrize("case", CHUNKS)
def test_a_ring_gathers_no_embeddings(results_and_ranks: tuple[Results, Ranks], case: str) -> None:
    # Ids and numbers of rows have one axis, embeddings two.
    assert results_and_ranks[1][case] == ({1} if case.startswith("sigmoid") else {1, 2})


@pytest.mark.slow
def test_dropout_and_statistics_under_a_strategy(two_devices: tf.distribute.Strategy) -> None:
    with two_devices.scope():
        model, rows = with_everything_random()
        variables = model.non_trainable_variables
        before = [keras.ops.convert_to_numpy(variable) for variable in variables]
        data = tf.data.Dataset.from_tensor_slices(rows).batch(8)
        history = model.fit(data, verbose=0).history
        after = [keras.ops.convert_to_numpy(variable) for variable in variables]
    assert np.isfinite(history["loss"]).all()
    # Everything that training writes down has moved: seeds, moving means and variances.
    assert sum((x != y).any() for x, y in zip(before, after, strict=True)) >= 4
    seeds = [int(x[1]) for x, variable in zip(after, variables, strict=True) if "seed" in variable.path]
    # Two draws, of the words' dropout and the images', in each of a replica's two chunks in every step.
    assert sorted(seeds)[-2:] == [2 * STEPS] * 2
