"""Sums over what all replicas hold, one replica's tensors at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vsemb.ops.replicas import replica_count

Tensor = Any


def sum_over_ring(
    function: Callable[[Sequence[Tensor], int, Sequence[Tensor]], Tensor],
    passed: Sequence[Tensor],
    kept: Sequence[Tensor],
) -> Tensor:
    """Adds up a scalar function of this replica's tensors and those of each replica in turn.

    Where `gather_across_replicas` puts everything side by side, with a gradient as large, this holds one
    replica's tensors at a time: Zhai et al. 2023 (arXiv:2303.15343, section 3.3 and figure 1). Their ring
    hands tensors from neighbour to neighbour, which `tf.distribute` offers on TPUs alone; here each replica
    in turn sends its own to all, as a sum to which the others add zeros, and gets the sum of the gradients
    back. An all-reduce moves about twice the bytes of a broadcast, so a step moves about twice what gathering
    moves, in as many turns as there are replicas, one after the other.

    Args:
        function: from one replica's `passed`, that replica's number and this replica's `kept` to a float32
            scalar. Called once a turn; it must not talk to other replicas.
        passed: float tensors of the same shapes on all replicas.
        kept: float tensors.

    Returns:
        float32 scalar, this replica's sum. It has a gradient for all tensors, computed together with it: all
        replicas must weigh their sums alike in what they minimise.

    Example: without a strategy there is one turn.

    >>> from keras import ops
    >>> float(sum_over_ring(lambda x, turn, y: ops.sum(x[0] * y[0]) + turn, [ops.ones(3)], [ops.ones(3)]))
    3.0
    """
    replicas = replica_count()
    if replicas == 1:
        return function(passed, 0, kept)
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    add = tf.distribute.ReduceOp.SUM
    number = len(passed)

    @tf.custom_gradient
    def total(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        # Kept from recording the turns, whose own gradient would hold what all replicas passed.
        own = [tf.stop_gradient(each) for each in tensors]
        value = tf.zeros([])
        sums = [tf.zeros_like(each) for each in own]
        for turn in range(replicas):
            mine = tf.equal(context.replica_id_in_sync_group, turn)
            # One turn after the other, or several replicas' tensors would be in memory at once.
            with tf.control_dependencies([value, *sums]):
                sent = [tf.where(mine, each, 0.0) for each in own[:number]]
            sources = [*(context.all_reduce(add, each) for each in sent), *own[number:]]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                part = function(sources[:number], turn, sources[number:])
            parts = tape.gradient(part, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            value += part
            returned = [context.all_reduce(add, each) for each in parts[:number]]
            returned = [tf.where(mine, each, 0.0) for each in returned]
            sums = [old + new for old, new in zip(sums, [*returned, *parts[number:]], strict=True)]
        return value, lambda upstream: [upstream * each for each in sums]

    return total(*passed, *kept)
