"""The smallest losses of a batch that is divided among two replicas."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.test_two_replicas import forget_rows, on_replicas
from vsemb.losses import PairwiseRanking
from vsemb.losses.small_loss import SmallLoss

SCORES = np.array([[0.9, 0.8, 0.1, 0.1], [0.8, 0.5, 0.4, 0.0], [0.1, 0.1, 0.2, 0.3], [0, 0, 0, 0.9]], np.float32)
LABELS = np.eye(4, dtype=np.int32)


@pytest.mark.parametrize("given", [tf.identity, forget_rows])
@pytest.mark.parametrize("rows", [(2, 2), (3, 1), (4, 0)])
def test_two_replicas_compare_all_queries(two_devices, rows: tuple[int, int], given) -> None:
    loss = SmallLoss(PairwiseRanking(0.2), 0.25)
    parts = [[array[: rows[0]], array[rows[0] :]] for array in (LABELS, SCORES)]
    found = on_replicas(two_devices, lambda *x: loss.call(*map(given, x)), *parts)
    np.testing.assert_allclose(np.concatenate(found), [0.1, 0, 0.5, 0], atol=1e-6)  # See test_by_hand.
