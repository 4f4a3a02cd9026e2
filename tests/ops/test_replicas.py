"""Outside a strategy gathering is the identity; inside, see `tests/models/test_replicas.py`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from vsemb.ops.replicas import (
    gather_across_replicas,
    global_row_numbers,
    replica_count,
    rows_of_replicas,
    spans_workers,
)


def test_identity_on_one_device() -> None:
    x = tf.constant([[1.0, 2.0]])
    assert gather_across_replicas(x) is x
    assert replica_count() == 1
    assert global_row_numbers([3]).numpy().tolist() == [0, 1, 2]


def test_row_numbers_of_an_unknown_number_of_rows() -> None:
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int64)])
    def rows(ids: tf.Tensor) -> tf.Tensor:
        return global_row_numbers(rows_of_replicas(tf.shape(ids)[0]))

    assert rows(np.zeros(4, np.int64)).numpy().tolist() == [0, 1, 2, 3]


def test_what_spans_workers() -> None:
    def workers(kind: type, count: int) -> tf.distribute.Strategy:
        strategy = kind.__new__(kind)
        strategy._extended = SimpleNamespace(_num_workers=count)
        return strategy

    many, mirrored = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.MirroredStrategy
    assert spans_workers(workers(many, 2)) and not spans_workers(workers(many, 1))
    assert not spans_workers(workers(mirrored, 2)) and not spans_workers(None)
