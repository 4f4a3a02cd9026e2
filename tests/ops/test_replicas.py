"""Outside a strategy gathering is the identity; inside, see `tests/models/test_replicas.py`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vsemb.ops.replicas import gather_across_replicas, global_row_numbers, replica_count


def test_identity_on_one_device() -> None:
    x = tf.constant([[1.0, 2.0]])
    assert gather_across_replicas(x) is x
    assert replica_count() == 1
    assert global_row_numbers(3).numpy().tolist() == [0, 1, 2]


def test_row_numbers_of_an_unknown_number_of_rows() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def rows(ids: tf.Tensor) -> tf.Tensor:
        return global_row_numbers(tf.shape(ids)[0])

    assert rows(np.zeros(4, np.int64)).numpy().tolist() == [0, 1, 2, 3]
