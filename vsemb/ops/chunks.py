"""Functions of many rows, computed in chunks without storing activations for the gradient.

Memory is limited to one chunk, besides the arguments and the result. With a gradient, a chunk
is computed twice. On TensorFlow this is a loop in graph, on other backends one checkpoint per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

Tensor = Any

#: From (some rows, weights, state) to (float32, one row for each, state).
ChunkFunction = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]


def map_in_chunks(
    function: ChunkFunction,
    rows: Tensor,
    chunk_size: int,
    weights: Sequence[Tensor],
    state: Sequence[Tensor] = (),
) -> tuple[Tensor, list[Tensor]]:
    """Map rows chunk by chunk; the gradient for the weights computes each chunk again.

    This is gradient caching (Gao et al. 2021, arXiv:2101.06983, section 3.2): the gradient of a loss for all
    results comes first, and then each chunk's gradient for the weights, one after the other. A chunk is
    computed from the same state both times, so that its random numbers are the same.

    Args:
        function: from some rows, the weights and a state to (rows, ...) float32 and the next state. Pure: it
            reads and writes no variable. It must not depend on the state otherwise than both times alike.
        rows: (n, ...), which get no gradient.
        chunk_size: rows at a time, >= 1; the last chunk may be smaller.
        weights: float tensors that get a gradient, always a dense one.
        state: values passed from each chunk to the next, such as seeds; tensors of constant shapes, without gradient.

    Returns:
        The results, (n, ...) float32, and the state after the last chunk.

    Example: rows of a matrix product, two at a time, which count the chunks.

    >>> rows, kernel = ops.ones((5, 2)), ops.ones((2, 1))
    >>> step = lambda x, weights, state: (ops.matmul(x, weights[0]), [state[0] + 1])
    >>> result, state = map_in_chunks(step, rows, 2, [kernel], [ops.convert_to_tensor(0)])
    >>> result.shape[0], int(state[0])
    (5, 3)
    """
    if keras.backend.backend() != "tensorflow":
        parts, state, again = [], list(state), keras.remat(function)
        for start in range(0, max(rows.shape[0], 1), chunk_size):
            part, state = again(rows[start : start + chunk_size], list(weights), state)
            parts.append(part)
        return ops.concatenate(parts, axis=0), list(state)
    import tensorflow as tf

    rows = tf.convert_to_tensor(rows)
    # Of a variable, its value now.
    weights, state = list(map(tf.convert_to_tensor, weights)), list(map(tf.convert_to_tensor, state))
    chunks = tf.maximum(-(-tf.shape(rows)[0] // chunk_size), 1)
    shapes, final = [], []

    @tf.custom_gradient
    def results(*differentiated: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        # Kept from recording the loop, whose own gradient would hold every chunk.
        weights = list(map(tf.stop_gradient, differentiated))

        def forward(k: Tensor, before: list[Tensor], written: Any) -> Any:
            result, after = function(_rows_of(rows, k, chunk_size), weights, before)
            shapes.append(result.shape[1:])
            return k + 1, list(after), written.write(k, result)

        written = tf.TensorArray(tf.float32, size=chunks, infer_shape=False)
        after, written = _loop(chunks, forward, state, written)
        final.extend(after)
        all_results = written.concat()
        all_results.set_shape([rows.shape[0], *shapes[0]])

        def gradient(upstream: Any) -> list[Tensor]:
            # That of rows which were picked out comes as a list of them.
            upstream = tf.convert_to_tensor(upstream)

            def backward(k: Tensor, before: list[Tensor], sums: list[Tensor]) -> Any:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(weights)
                    result, after = function(_rows_of(rows, k, chunk_size), weights, before)
                parts = tape.gradient(result, weights, output_gradients=_rows_of(upstream, k, chunk_size))
                return k + 1, list(after), _added(sums, parts)

            return _loop(chunks, backward, state, list(map(tf.zeros_like, weights)))[1]

        return all_results, gradient

    return results(*weights), final


def _rows_of(x: Tensor, chunk: Tensor, size: int) -> Tensor:
    rows = x[chunk * size : (chunk + 1) * size]
    if x.shape[0] and x.shape[0] % size == 0:
        rows.set_shape([size, *x.shape[1:]])
    return rows


def _loop(count: Tensor, body: Callable[..., Any], *carried: Any) -> Any:
    """Runs `body` for k < count, one after the other, or several chunks would be in memory at once."""
    import tensorflow as tf

    start = (tf.constant(0), *carried)
    return tf.while_loop(lambda k, *_: k < count, body, start, parallel_iterations=1)[1:]


def _added(totals: list[Tensor], parts: Sequence[Any]) -> list[Tensor]:
    """Adds gradients to sums; a part is a tensor, a list of rows, or None for none."""
    import tensorflow as tf

    added = []
    for total, part in zip(totals, parts, strict=True):
        if isinstance(part, tf.IndexedSlices):
            added.append(tf.tensor_scatter_nd_add(total, part.indices[:, None], part.values))
        else:
            added.append(total if part is None else total + part)
    return added


def sum_in_blocks(
    function: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor],
    rows: Sequence[Tensor],
    whole: Sequence[Tensor],
    block_size: int,
    *,
    gradient: bool = True,
) -> Tensor:
    """Adds up a scalar function of blocks of rows; of a block, its value and gradient are kept and no more.

    Args:
        function: from a block of each of `rows`, and `whole`, to a float32 scalar. Pure, as in
            `map_in_chunks`.
        rows: tensors (n, ...) that are cut into blocks together.
        whole: tensors that every block needs.
        block_size: rows at a time, >= 1; the last block has what is left.
        gradient: whether a gradient is going to be asked for; it is computed together with the value.
            Without, there still is one, which holds every block.

    Returns:
        float32 scalar, with a gradient for all tensors of floats.

    Example: a dot product in blocks of two.

    >>> x, y = ops.arange(5, dtype="float32"), ops.ones(5)
    >>> float(sum_in_blocks(lambda rows, whole: ops.sum(rows[0] * rows[1]), [x, y], [], 2))
    10.0
    """
    if keras.backend.backend() != "tensorflow":
        again = keras.remat(lambda rows, whole: function(rows, whole))
        starts = range(0, rows[0].shape[0], block_size)
        added = ops.zeros(())
        for start in starts:
            added += again([x[start : start + block_size] for x in rows], list(whole))
        return added
    import tensorflow as tf

    tensors, number = [tf.convert_to_tensor(x) for x in (*rows, *whole)], len(rows)
    # A replica without rows has one block of none.
    blocks = tf.maximum(-(-tf.shape(tensors[0])[0] // block_size), 1)

    def block_of(tensors: list[Tensor], k: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        return [_rows_of(x, k, block_size) for x in tensors[:number]], tensors[number:]

    if not gradient:
        return _loop(blocks, lambda k, total: (k + 1, total + function(*block_of(tensors, k))), tf.zeros([]))[0]

    @tf.custom_gradient
    def total(*differentiated: Tensor) -> tuple[Tensor, Callable[[Tensor], list[Tensor | None]]]:
        # Kept from recording the loop, whose own gradient would hold every block.
        tensors = list(map(tf.stop_gradient, differentiated))
        cut, kept = _floats(tensors[:number]), _floats(tensors[number:])

        def body(k: Tensor, value: Tensor, written: list[Any], sums: list[Tensor]) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                block, whole = block_of(tensors, k)
                sources = _floats([*block, *whole])
                tape.watch(sources)
                part = function(block, whole)
            parts = tape.gradient(part, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            written = [array.write(k, x) for array, x in zip(written, parts[: len(cut)], strict=True)]
            return k + 1, value + part, written, _added(sums, parts[len(cut) :])

        arrays = [tf.TensorArray(x.dtype, size=blocks, infer_shape=False) for x in cut]
        value, arrays, sums = _loop(blocks, body, tf.zeros([]), arrays, list(map(tf.zeros_like, kept)))
        of_rows = [tf.ensure_shape(array.concat(), x.shape) for array, x in zip(arrays, cut, strict=True)]

        def of_total(upstream: Tensor) -> list[Tensor | None]:
            gradients = iter([*of_rows, *sums])
            return [upstream * next(gradients) if x.dtype.is_floating else None for x in differentiated]

        return value, of_total

    return total(*tensors)


def _floats(tensors: list[Tensor]) -> list[Tensor]:
    return [x for x in tensors if x.dtype.is_floating]
