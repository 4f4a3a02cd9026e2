"""Communication between the replicas of a distribution strategy; without a strategy nothing is sent."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from vsemb.errors import invalid_argument

Tensor = Any

# A prime, so that no layer's seed is that of another one's replica but by accident.
_SEEDS_APART = 1_000_003


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


def rows_of_replicas(rows: int | Tensor) -> list[Any]:
    """Returns how many rows each replica has; the last batch of a dataset may have fewer on one, or none.

    Nothing is sent where the numbers are static shapes, as in batches with `drop_remainder`.

    Args:
        rows: number of local rows, an int or a scalar tensor.

    Returns:
        A number per replica, in their order: ints where they are known, else int32 scalars.
    """
    context = _replica_context()
    if context is None:
        return [rows]
    import tensorflow as tf

    # Replicas are traced side by side and meet here, so that each sees the shapes of the others.
    known = context.merge_call(_known_rows, args=(tf.get_static_value(rows),))
    if known is not None:
        return list(known)
    counts = gather_across_replicas(tf.reshape(tf.cast(rows, tf.int32), [1]))
    return tf.unstack(counts, num=context.num_replicas_in_sync)


def _known_rows(strategy: Any, rows: Any) -> tuple[int, ...] | None:
    """Returns the numbers of all replicas if this process has all replicas and knows their numbers."""
    import tensorflow as tf

    local = len(strategy.extended.worker_devices)
    values = rows.values if isinstance(rows, tf.distribute.DistributedValues) else [rows] * local
    if local < strategy.num_replicas_in_sync or any(value is None for value in values):
        return None
    return tuple(int(value) for value in values)


def gather_across_replicas(x: Tensor) -> Tensor:
    """Concatenates every replica's rows, in the order of the replicas, with gradients.

    The gradient of a row is the sum of what all replicas say about it. Replicas may have different numbers of rows.

    Args:
        x: (rows, ...) this replica's tensor.

    Returns:
        (all rows, ...), the same on each replica.
    """
    context = _replica_context()
    if context is None:
        return x
    import tensorflow as tf

    # What the step is given has no device in a graph, and where a worker has one replica, gathering goes to
    # the device of what is gathered: that of the copy is the replica's own.
    return context.all_gather(tf.identity(x), axis=0)


def global_row_numbers(counts: Sequence[Any]) -> Tensor:
    """Returns the positions of this replica's rows in what `gather_across_replicas` returns.

    Args:
        counts: rows of each replica, from `rows_of_replicas`.

    Returns:
        (rows,) int32.
    """
    context = _replica_context()
    if context is None:
        return ops.arange(counts[0], dtype="int32")
    import tensorflow as tf

    replica = context.replica_id_in_sync_group
    ends = tf.cumsum(tf.stack(counts))
    return tf.range(ends[replica] - tf.stack(counts)[replica], ends[replica])


def padded_to_longest(x: Tensor) -> Tensor:
    """Pads sets with rows of zeros, so that they have as many vectors on all replicas.

    Args:
        x: (rows, vectors, dim).

    Returns:
        (rows, longest, dim).
    """
    counts = rows_of_replicas(ops.shape(x)[1])
    alike = all(isinstance(count, int) and count == counts[0] for count in counts)
    if alike or len(counts) == 1:
        return x
    import tensorflow as tf

    return tf.pad(x, [[0, 0], [0, tf.reduce_max(tf.stack(counts)) - tf.shape(x)[1]], [0, 0]])


def sum_over_ring(
    function: Callable[[Sequence[Tensor], int, Sequence[Tensor]], Tensor],
    passed: Sequence[Tensor],
    kept: Sequence[Tensor],
) -> Tensor:
    """Adds up a scalar function of this replica's tensors and the tensors of each replica in turn.

    Where `gather_across_replicas` puts everything side by side, with a gradient as large, this holds one
    replica's tensors at a time: Zhai et al. 2023 (arXiv:2303.15343, section 3.3 and figure 1). Their ring
    hands tensors from neighbour to neighbour, which `tf.distribute` offers on TPUs only. Here each replica
    in turn sends its own to all, as a sum to which the others add zeros, and gets the sum of the gradients
    back. An all-reduce moves about twice the bytes of a broadcast, so a step moves about twice what gathering
    moves, in as many turns as there are replicas, one after the other.

    Args:
        function: from one replica's `passed`, that replica's number and this replica's `kept` to a float32
            scalar. Called once a turn; it must not talk to other replicas.
        passed: float tensors; replicas may have different numbers of rows, and the same other sizes.
        kept: float tensors.

    Returns:
        float32 scalar, this replica's sum. It has a gradient for all tensors, computed together with it: all
        replicas must weigh their sums alike in what they minimize.

    Example: without a strategy there is one turn.

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
    rows = [rows_of_replicas(ops.shape(x)[0]) for x in passed]

    @tf.custom_gradient
    def total(*tensors: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        # Kept from recording the turns, whose own gradient would hold what all replicas passed.
        own = list(map(tf.stop_gradient, tensors))
        value = tf.zeros([])
        sums = list(map(tf.zeros_like, own))
        for turn in range(replicas):
            mine = tf.equal(context.replica_id_in_sync_group, turn)
            # One turn after the other, or several replicas' tensors would be in memory at once.
            with tf.control_dependencies([value, *sums]):
                alike = [_with_rows(x, counts[turn]) for x, counts in zip(own[:number], rows, strict=True)]
                sent = [tf.where(mine, x, 0.0) for x in alike]
            sources = [context.all_reduce(add, x) for x in sent] + own[number:]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                part = function(sources[:number], turn, sources[number:])
            parts = tape.gradient(part, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            value += part
            returned = [context.all_reduce(add, gradient) for gradient in parts[:number]]
            returned = [tf.where(mine, gradient, 0.0) for gradient in returned]
            returned = [_with_rows(new, ops.shape(old)[0]) for old, new in zip(sums[:number], returned, strict=True)]
            sums = [old + new for old, new in zip(sums, [*returned, *parts[number:]], strict=True)]
        return value, lambda upstream: [upstream * gradient for gradient in sums]

    return total(*passed, *kept)


def _with_rows(x: Tensor, rows: int | Tensor) -> Tensor:
    """Returns the first rows, or all and rows of zeros after them."""
    import tensorflow as tf

    if isinstance(rows, int) and x.shape[0] == rows:
        return x
    missing = tf.maximum(rows - tf.shape(x)[0], 0)
    return tf.pad(x[:rows], [[0, missing], *[[0, 0]] * (len(x.shape) - 1)])


def batch_spec(dataset: Any) -> Any:
    """Returns the specification of one replica's batches, nested `tf.TensorSpec`.

    Args:
        dataset: a `tf.data.Dataset`, or one that a strategy distributed.
    """
    # One specification per replica under a strategy.
    return keras.tree.map_structure(lambda spec: getattr(spec, "_value_specs", (spec,))[0], dataset.element_spec)


def spans_workers(strategy: Any) -> bool:
    """Returns whether a strategy's replicas are in more than one process.

    Args:
        strategy: a `tf.distribute.Strategy`, or None.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._num_workers > 1


def step_of_workers(strategy: Any, step: Callable[[Any], dict[str, Tensor]]) -> Callable[[Any], dict[str, Tensor]]:
    """Returns what `fit` calls with its iterator, for a strategy that `spans_workers`.

    Args:
        strategy: the strategy.
        step: from a replica's batch to its logs, scalars.

    Returns:
        From an iterator to the mean of all replicas' logs, the same in every worker.
    """
    import tensorflow as tf

    def step_and_mean(data: Any) -> dict[str, Tensor]:
        context = tf.distribute.get_replica_context()
        return {name: context.all_reduce("MEAN", value) for name, value in step(data).items()}

    @tf.function(reduce_retracing=True, autograph=False)
    def run(data: Any) -> dict[str, Tensor]:
        logs = strategy.run(step_and_mean, args=(data,))
        return {name: strategy.experimental_local_results(value)[0] for name, value in logs.items()}

    return lambda iterator: run(next(_of_workers(iterator)))


def _of_workers(iterator: Any) -> Any:
    import tensorflow as tf

    if not isinstance(iterator, tf.distribute.DistributedIterator):
        # Each replica of each worker would get all rows.
        fix = "Use fit, evaluate or predict with a dataset, whose batches are divided among the workers."
        raise invalid_argument("x", "a single batch", "a dataset under a strategy of several workers", fix)
    return iterator


def row_weight(rows: int | Tensor) -> Tensor:
    """Returns the factor that turns Keras' mean over this replica's rows into its part of the mean over all rows.

    Keras divides the mean of a replica's rows by the number of replicas, as if all had the same number of rows.

    Args:
        rows: number of local rows.

    Returns:
        float32 scalar; 1 where all replicas have as many rows.
    """
    counts = rows_of_replicas(rows)
    return ops.cast(rows, "float32") * len(counts) / ops.maximum(ops.cast(sum(counts), "float32"), 1.0)


def weigh_rows_alike(metric: keras.metrics.Metric) -> None:
    """Lets the metric of a loss weigh a batch by its rows on all replicas, and not each replica by its own.

    The replicas' losses are parts of a sum, to which one without rows may add a penalty.

    Args:
        metric: the mean of the losses, updated by Keras with a replica's loss times the number of replicas.
    """
    update = functools.partial(type(metric).update_state, metric)

    def update_with_all_rows(values: Tensor, sample_weight: Any = None) -> Any:
        if replica_count() == 1 or sample_weight is None:
            return update(values, sample_weight)
        counts = rows_of_replicas(sample_weight)
        return update(values, ops.cast(sum(counts), "float32") / len(counts))

    metric.update_state = update_with_all_rows


def normalize_together(layer: keras.layers.BatchNormalization, together: bool = True) -> None:
    """Lets a batch normalization use the statistics of the rows of all replicas.

    Keras computes them on each replica alone.

    Args:
        layer: the layer; its configuration stays as it is.
        together: false where replicas cannot talk, as in the loop over chunks. A replica without rows then keeps
            its moving averages.
    """
    moments = functools.partial(type(layer)._moments, layer)

    def moments_of_all(inputs: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        context = _replica_context()
        if context is None:
            return moments(inputs, mask)
        import tensorflow as tf

        if not together:
            stored = layer.moving_mean, layer.moving_variance
            own = moments(inputs, mask)
            return tuple(tf.where(tf.shape(inputs)[0] > 0, *pair) for pair in zip(own, stored, strict=True))
        counted = tf.ones_like(inputs) if mask is None else tf.cast(mask, inputs.dtype)[..., None] + 0 * inputs
        axes = layer._reduction_axes
        add = functools.partial(context.all_reduce, tf.distribute.ReduceOp.SUM)
        count = add(tf.reduce_sum(counted, axes))
        mean = tf.math.divide_no_nan(add(tf.reduce_sum(counted * inputs, axes)), count)
        shape = [-1 if axis not in axes else 1 for axis in range(len(inputs.shape))]
        deviations = counted * tf.square(inputs - tf.reshape(mean, shape))
        return mean, tf.math.divide_no_nan(add(tf.reduce_sum(deviations, axes)), count)

    layer._moments = moments_of_all


def on_one_batch(strategy: Any, step: Callable[[Any], Any], results: Callable[[], Any]) -> Callable[[Any], Any]:
    """Returns a function of steps that also takes single batches, of which Keras gives all rows to each replica.

    Args:
        strategy: the strategy.
        step: from an iterator to logs, from Keras.
        results: returns the metrics of all replicas.
    """
    import tensorflow as tf

    def step_on_iterator(iterator: Any) -> Any:
        if isinstance(iterator, tf.data.Iterator | tf.distribute.DistributedIterator):
            return step(iterator)
        step(divided(strategy, batch) for batch in iterator)
        return results()

    return step_on_iterator


def divided(strategy: Any, batch: Any) -> Any:
    """Divides the rows of a batch among the replicas, as `fit` does.

    Args:
        strategy: the strategy; None for one device.
        batch: nested arrays.
    """
    if strategy is None or strategy.num_replicas_in_sync == 1:
        return batch
    if spans_workers(strategy):
        batch = _of_workers(batch)
    import tensorflow as tf

    return next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(batch))))


def draw_apart(generator: keras.random.SeedGenerator) -> None:
    """Lets every replica draw its own random numbers; Keras gives all the same, and so the same dropout.

    The first replica draws what a single device draws.

    Args:
        generator: whose `state` is to be the same on all replicas, as Keras leaves it.
    """
    draw = functools.partial(type(generator).next, generator)

    def next_of_replica(*arguments: Any, **options: Any) -> Tensor:
        seed, context = draw(*arguments, **options), _replica_context()
        if context is None:
            return seed
        replica = ops.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + ops.stack([replica * _SEEDS_APART, ops.zeros_like(replica)])

    generator.next = next_of_replica


def clip_after_sum(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets an optimizer under a strategy clip the sum of the replicas' gradients.

    Keras clips each replica's gradients by themselves and sums what is left, which is another step than that
    of one device with the whole batch. Does nothing without a strategy of several replicas, or to an
    optimizer that does not clip.

    Args:
        optimizer: one of Keras' own or of its subclasses, made in the strategy's scope.
    """
    strategy = getattr(optimizer, "_distribution_strategy", None)
    if strategy is None or strategy.num_replicas_in_sync == 1 or optimizer.gradient_accumulation_steps:
        return
    if not (optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue):
        return
    clip, add_up = type(optimizer)._clip_gradients, type(optimizer)._all_reduce_sum_gradients

    def sum_and_clip(gradients: Sequence[Tensor]) -> list[Tensor]:
        pairs = add_up(optimizer, [(gradient, None) for gradient in gradients])
        return clip(optimizer, [gradient for gradient, _ in pairs])

    optimizer._clip_gradients = sum_and_clip
    optimizer._all_reduce_sum_gradients = lambda pairs: pairs
