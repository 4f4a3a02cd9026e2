"""Outside a strategy gathering is the identity; inside, see `test_two_replicas.py`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from vsemb.ops import replicas
from vsemb.ops.replicas import (
    gather_across_replicas,
    global_row_numbers,
    replica_count,
    row_weight,
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


def test_means_over_the_rows_of_replicas_become_the_mean_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert float(row_weight(3)) == 1
    # Rows 1 and 4 on one replica, 7 on the other: their mean is 4. Keras halves the sum of (1 + 4) / 2 and 7.
    monkeypatch.setattr(replicas, "rows_of_replicas", lambda rows: [2, 1])
    np.testing.assert_allclose((row_weight(2) * 2.5 + row_weight(1) * 7) / 2, 4, rtol=1e-6)
    monkeypatch.setattr(replicas, "rows_of_replicas", lambda rows: [0, 0])
    assert float(row_weight(0)) == 0


def test_what_spans_workers() -> None:
    def workers(kind: type, count: int) -> tf.distribute.Strategy:
        strategy = kind.__new__(kind)
        strategy._extended = SimpleNamespace(_num_workers=count)
        return strategy

    many, mirrored = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.MirroredStrategy
    assert spans_workers(workers(many, 2)) and not spans_workers(workers(many, 1))
    assert not spans_workers(workers(mirrored, 2)) and not spans_workers(None)
