"""Gathering across the replicas of a distribution strategy; the identity everywhere else."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


def _replica_context() -> Any:
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def replica_count() -> int:
    """Returns the number of replicas in sync: 1 outside a strategy and on other backends."""
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def gather_across_replicas(x: Tensor) -> Tensor:
    """Concatenates every replica's rows, in the order of the replicas, with gradients.

    The gradient of a row is the sum of what all replicas say about it. Needs the same number of rows
    on each replica.

    Args:
        x: (rows, ...) this replica's tensor.

    Returns:
        (replicas x rows, ...), the same on each replica.
    """
    context = _replica_context()
    return x if context is None else context.all_gather(x, axis=0)


def global_row_numbers(rows: Tensor) -> Tensor:
    """Returns the positions of this replica's rows in what `gather_across_replicas` returns.

    Args:
        rows: number of local rows, an int or a scalar tensor.

    Returns:
        (rows,) int32.
    """
    numbers = ops.arange(rows, dtype="int32")
    context = _replica_context()
    if context is None:
        return numbers
    replica = ops.cast(context.replica_id_in_sync_group, "int32")
    return numbers + replica * ops.cast(rows, "int32")
