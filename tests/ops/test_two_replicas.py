"""Tensors that two replicas share in a compiled function."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from vsemb.ops.replicas import normalize_together, padded_to_longest, sum_over_ring


def on_replicas(strategy, function, *parts: list[np.ndarray]) -> list[np.ndarray]:
    """What a compiled function gives on each replica for its parts."""

    def part_of(values: list[np.ndarray]):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group])
        )

    @tf.function(autograph=False)
    def run(*values):
        return strategy.run(function, values)

    results = strategy.experimental_local_results(run(*map(part_of, parts)))
    return [result.numpy() for result in results]


def forget_rows(x: tf.Tensor) -> tf.Tensor:
    """The same rows, of which the graph does not know the number."""
    return tf.boolean_mask(x, tf.ones(tf.shape(x)[:1], bool))


def test_sets_are_padded_to_the_longest_of_any_replica(two_devices) -> None:
    # The size of a vector, 5, is not the number of vectors.
    sets = [np.ones((3, 2, 5), np.float32), np.ones((2, 4, 5), np.float32)]
    short, long = on_replicas(two_devices, padded_to_longest, sets)
    assert short.shape == (3, 4, 5) and long.shape == (2, 4, 5)
    assert short[:, :2].all() and not short[:, 2:].any() and long.all()


@pytest.mark.parametrize("given", [tf.identity, forget_rows])
@pytest.mark.parametrize("rows", [(3, 1), (1, 3), (2, 0)])
def test_a_ring_adds_up_all_pairs_of_uneven_replicas(two_devices, rows: tuple[int, int], given) -> None:
    passed = [np.arange(1, 2 * n + 1, dtype=np.float32).reshape(n, 2) for n in rows]
    kept = [np.full((2, 2), factor, np.float32) for factor in (1.0, 10.0)]

    def total(x, y):
        return sum_over_ring(lambda others, turn, own: tf.reduce_sum(others[0][:, None] * own[0]), [given(x)], [y])

    of_all = sum(part.sum() for part in passed)
    found = on_replicas(two_devices, total, passed, kept)
    np.testing.assert_allclose(found, [2 * 1.0 * of_all, 2 * 10.0 * of_all], rtol=1e-6)


def test_a_replica_without_rows_keeps_its_moving_statistics_where_replicas_do_not_talk(two_devices) -> None:
    with two_devices.scope():
        layer = keras.layers.BatchNormalization()
        layer.build((None, 2))
        layer.moving_mean.assign([3.0, 4.0])
    normalize_together(layer, together=False)
    rows = [np.array([[1.0, 5.0], [3.0, 7.0]], np.float32), np.zeros((0, 2), np.float32)]
    some, none = on_replicas(two_devices, lambda x: layer._moments(x, None)[0], rows)
    np.testing.assert_allclose(some, [2.0, 6.0])
    np.testing.assert_allclose(none, [3.0, 4.0])
