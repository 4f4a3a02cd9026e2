"""Loops of `vsemb.encoders.recurrent` on TensorFlow, with custom gradients.

The gradient of `tf.while_loop` adds a gradient of the recurrent matrix at every step, and stores every intermediate
result. Here, one product after the loop computes the gradient of the matrix, and a step stores only its gates. They are
stored as plain tensors, because `tf.saved_model.save` cannot write arrays of tensors.

Products are computed in the dtype of `recurrent`, everything else in the dtype of `inputs`. With bfloat16 matrices, the
state is rounded for the product, but not from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vsemb.ops.tensorflow import tf

Tensor = Any


def gru_loop(
    inputs: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    initial: tuple[Tensor],
    training: bool,
) -> Sequence[Tensor]:
    """Run a GRU with `reset_after`, as Keras and cuDNN define it, on input products that are already computed.

        z = sigmoid(x_z + a_z + h U_z + b_z)     r = sigmoid(x_r + a_r + h U_r + b_r)
        h' = h + (1 - z) (tanh(x_h + a_h + r (h U_h + b_h)) - h)

    Args:
        inputs: (steps, batch, 3 units) float32 or float64, concatenated x_z, x_r, x_h.
        recurrent: U, (units, 3 units), dtype of `inputs` or bfloat16.
        bias: (2, 3 units) of the dtype of `inputs`: a, of the inputs, and b, of the state.
        mask: (steps, batch, 1) bool; h does not change in steps with False; None for all True.
        initial: h, (batch, units) of the dtype of `inputs`.
        training: whether to use the custom gradient. Without it, TensorFlow derives a slower gradient.

    Returns:
        h, (steps, batch, units).
    """
    moves = None if mask is None else tf.cast(mask, inputs.dtype)

    def run(x: Tensor, recurrent: Tensor, biases: Any, initial: Tensor, *widths: int) -> list[Any]:
        state_bias, candidate_bias = _merged(*biases)

        def step(number: Tensor, h: Tensor) -> tuple[Any, Any]:
            moving = None if moves is None else moves[number]
            values = _gru_step(x[number], _product(h, recurrent) + state_bias, h, candidate_bias, moving)
            return values[:1], values[: len(widths)]

        return _scan(step, (initial,), x, widths)[1]

    if not training:
        return run(inputs, recurrent, tf.unstack(bias), *initial, 1)

    @tf.custom_gradient
    def states(inputs: Tensor, recurrent: Tensor, a: Tensor, b: Tensor, initial: Tensor) -> tuple[Any, Any]:
        h, gates, candidates, sums = run(inputs, recurrent, (a, b), initial, 1, 2, 1, 1)
        before = tf.concat([initial[None], h[:-1]], 0)
        units = recurrent.shape[0]
        transposed = tf.transpose(recurrent)  # Transposed once: a product that transposes takes twice as long.

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            def back(number: Tensor, d_next: Tensor) -> tuple[Any, Any]:
                d_h = d_next + upstream[number]
                z, r = gates[number, :, :units], gates[number, :, units:]
                candidate = candidates[number]
                moved = d_h * (1 - z) if moves is None else d_h * (1 - z) * moves[number]
                d_candidate = moved * (1 - candidate * candidate)
                d_z = moved * (before[number] - candidate) * z
                d_r = d_candidate * sums[number] * r * (1 - r)
                d_inner = tf.concat([d_z, d_r, d_candidate * r], 1)
                return (d_h - moved + _product(d_inner, transposed),), (d_inner, d_candidate)

            zero = tf.zeros_like(initial)
            (d_initial,), (d_inner, d_candidates) = _scan(back, (zero,), upstream, (3, 1), reverse=True)
            # The sums of a gate have the same gradient for x, a and h U + b. In the candidate, r multiplies h U + b.
            d_inputs = tf.concat([d_inner[:, :, : 2 * units], d_candidates], 2)
            d_inner = tf.reshape(d_inner, [-1, 3 * units])
            # This operation adds rows in a third of the time of `tf.reduce_sum`.
            d_b = tf.raw_ops.BiasAddGrad(out_backprop=d_inner)
            d_candidate_bias = tf.raw_ops.BiasAddGrad(out_backprop=d_candidates)
            d_a = tf.concat([d_b[: 2 * units], d_candidate_bias], 0)
            return d_inputs, _outer(before, d_inner, recurrent), d_a, d_b, d_initial

        return h, gradient

    return [states(inputs, recurrent, *tf.unstack(bias), *initial)]


def lstm_loop(
    inputs: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    initial: tuple[Tensor, Tensor],
    training: bool,
) -> Sequence[Tensor]:
    """Run an LSTM on input products that are already computed.

        i, f, o = sigmoid(x + b + h U)     g = tanh(x_g + b_g + h U_g)
        c' = f c + i g                     h' = o tanh(c')

    Args:
        inputs: (steps, batch, 4 units) float32 or float64, in Keras' order i, f, g, o.
        recurrent: U, (units, 4 units), dtype of `inputs` or bfloat16.
        bias: b, (4 units,) of the dtype of `inputs`.
        mask: (steps, batch, 1) bool; h and c do not change in steps with False; None for all True.
        initial: h and c, each (batch, units) of the dtype of `inputs`.
        training: as in `gru_loop`.

    Returns:
        h and c, each (steps, batch, units).
    """
    inputs = tf.nn.bias_add(inputs, bias)

    def at(number: Tensor, new: Tensor, old: Tensor) -> Tensor:
        return new if mask is None else tf.where(mask[number], new, old)

    def run(x: Tensor, recurrent: Tensor, initial: tuple[Tensor, Tensor], *widths: int) -> list[Any]:
        def step(number: Tensor, h: Tensor, c: Tensor) -> tuple[Any, Any]:
            new_h, new_c, gates = _lstm_step(x[number], _product(h, recurrent), h, c)
            carried = at(number, new_h, h), at(number, new_c, c)
            return carried, (*carried, gates)[: len(widths)]

        return _scan(step, initial, x, widths)[1]

    if not training:
        return run(inputs, recurrent, initial, 1, 1)

    @tf.custom_gradient
    def states(inputs: Tensor, recurrent: Tensor, h0: Tensor, c0: Tensor) -> tuple[Any, Any]:
        h, c, gates = run(inputs, recurrent, (h0, c0), 1, 1, 4)
        h_before = tf.concat([h0[None], h[:-1]], 0)
        c_before = tf.concat([c0[None], c[:-1]], 0)
        units = recurrent.shape[0]
        transposed = tf.transpose(recurrent)

        def gradient(up_h: Tensor, up_c: Tensor) -> tuple[Tensor, ...]:
            def back(number: Tensor, *d_next: Tensor) -> tuple[Any, Any]:
                d = d_next[0] + up_h[number], d_next[1] + up_c[number]
                d_h, d_c = (at(number, value, tf.zeros_like(value)) for value in d)
                i, f, g, o = tf.split(gates[number], 4, 1)
                tanh_c = tf.tanh(c[number])
                inside_c = d_c + d_h * o * (1 - tanh_c * tanh_c)
                d_total = tf.concat(
                    [
                        inside_c * g * i * (1 - i),
                        inside_c * c_before[number] * f * (1 - f),
                        inside_c * i * (1 - g * g),
                        d_h * tanh_c * o * (1 - o),
                    ],
                    1,
                )
                d_before = at(number, _product(d_total, transposed), d[0])
                return (d_before, at(number, inside_c * f, d[1])), (d_total,)

            zeros = tf.zeros_like(h0), tf.zeros_like(c0)
            (d_h0, d_c0), (d_total,) = _scan(back, zeros, up_h, (4,), reverse=True)
            flat = tf.reshape(d_total, [-1, 4 * units])
            return d_total, _outer(h_before, flat, recurrent), d_h0, d_c0

        return (h, c), gradient

    return states(inputs, recurrent, *initial)


def packed_loop(
    cell: str,
    directions: Sequence[tuple[Tensor, Tensor, bool]],
    input_sums: Callable[[Tensor], tuple[Sequence[Tensor], Tensor]],
    ids: Tensor,
    mask: Tensor,
) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """Run one or both directions of a layer for inference, without computation for padding.

    Rows are packed as in PyTorch: sorted by length, so that a step works on the first rows of the state. Both
    directions are in one loop.

    Args:
        cell: a key of `LOOPS`.
        directions: of each layer, the recurrent matrix, in the dtype of the products, the bias, in the dtype of the
            state, and whether it goes backwards.
        input_sums: function from the tokens of all words, (words,) or (words, n), to tables, one for each direction,
            and the row of each word in all of them, (words,) int32. Rows are products of word vectors and the kernel
            plus the bias of the inputs, in the dtype of the state.
        ids: (batch, steps) int32, or (batch, steps, n), of which a row is a token.
        mask: (batch, steps) bool; steps with False are skipped.

    Returns:
        For each direction, h of each word, (words, units), ordered by row, and the last h, (batch, units), 0 for rows
        without words; and the row of each word, (words,) int32.
    """
    _, step, states_of = LOOPS[cell]
    shown = tf.where(mask)  # (words, 2), sorted by row
    tables, places = input_sums(tf.gather_nd(ids, shown))
    rows = tf.cast(shown[:, 0], tf.int32)
    counts = tf.cast(mask, tf.int32)
    lengths = tf.reduce_sum(counts, 1)
    # Of each word, the number of words of its row before it, and after it.
    before, after = (
        tf.gather_nd(tf.cumsum(counts, 1, exclusive=True, reverse=reverse), shown) for reverse in (False, True)
    )
    ranks = tf.gather(tf.math.invert_permutation(tf.argsort(lengths, direction="DESCENDING", stable=True)), rows)
    steps = tf.maximum(tf.reduce_max(lengths), 0)  # The maximum of no row is the least integer.
    # Steps are numbered down to 1, as a number of steps to count up to would be a further variable of the loop. Number
    # 0 has no rows.
    active = tf.reduce_sum(tf.cast(lengths > tf.range(steps, -1, -1)[:, None], tf.int32), 1)
    starts = tf.cumsum(active, exclusive=True)
    # The loop's order of words is by number, then by rank: where each word stands in it.
    orders = [tf.gather(starts, steps - (after if backwards else before)) + ranks for *_, backwards in directions]
    recurrents, biases, _ = zip(*directions, strict=True)
    (units, width), count = recurrents[0].shape, len(directions)
    # Directions stand side by side, and each operation slices, adds or stores all of them: the time of a step for one
    # text grows with the number of its operations and of the loop's variables, which all tensors from outside are.
    words = [tf.gather(places, tf.math.invert_permutation(order)) for order in orders]
    inputs = tf.concat([tf.gather(table, own) for table, own in zip(tables, words, strict=True)], 1)
    of_state = [tf.unstack(tf.reshape(bias, (-1, width)))[1:] for bias in biases]
    added = [tf.concat(parts, 0) for parts in zip(*of_state, strict=True)]
    # For the elementwise operations, each direction of a text is a row.
    pieces, array = (
        tf.TensorArray(inputs.dtype, steps + 1, element_shape=(None, size), infer_shape=False)
        for size in (width, units)
    )
    pieces = pieces.split(tf.reshape(inputs, (-1, width)), active * count)

    def body(number: Tensor, states: Any, array: Any) -> tuple[Any, Any, Any]:
        x = pieces.read(number)
        # The rows that have a word at this step. The width of x, which is larger than theirs, cuts nothing off.
        states = [tf.strided_slice(state, (0, 0), tf.shape(x)) for state in states]
        for state in states:
            state.set_shape((None, units))
        parts = zip(tf.split(tf.reshape(states[0], (-1, count * units)), count, 1), recurrents, strict=True)
        products = tf.concat([_product(*part) for part in parts], 1)
        states = tuple(step(x, tf.reshape(sum(added, products), (-1, width)), *states)[:states_of])
        return number - 1, states, array.write(number, states[0])

    zero, shape = tf.zeros((tf.shape(mask)[0] * count, units), inputs.dtype), tf.TensorShape((None, units))
    _, _, array = tf.while_loop(
        lambda number, *_: number > 0,
        body,
        (steps, (zero,) * states_of, array.write(0, zero[:0])),  # Eagerly, nothing cannot be joined.
        (tf.TensorShape(()), (shape,) * states_of, tf.TensorShape(None)),
        parallel_iterations=1,
    )
    outputs = []
    by_direction = tf.split(tf.reshape(array.concat(), (-1, count * units)), count, 1)
    for (*_, backwards), order, states in zip(directions, orders, by_direction, strict=True):
        states = tf.gather(states, order)
        ended = tf.where(tf.equal(before if backwards else after, 0))
        last = tf.scatter_nd(tf.gather(rows, ended), tf.gather_nd(states, ended), (tf.shape(mask)[0], units))
        outputs.append((states, last))
    return outputs, rows


def _merged(of_inputs: Tensor, of_state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two biases that a GRU step adds: to the product of the state, and to the candidate."""
    gates = 2 * of_state.shape[0] // 3
    return of_state + tf.concat([of_inputs[:gates], tf.zeros_like(of_inputs[gates:])], 0), of_inputs[gates:]


def _gru_step(
    x: Tensor, sums: Tensor, h: Tensor, candidate_bias: Tensor | None = None, moves: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return the next h, then the values that the gradient needs: gates, candidate, and h U + b of the candidate."""
    sizes = (2 * h.shape[1], h.shape[1])
    x_gates, x_candidate = tf.split(x, sizes, 1)
    gate_sums, candidate_sum = tf.split(sums, sizes, 1)
    gates = tf.sigmoid(x_gates + gate_sums)
    z, r = tf.split(gates, 2, 1)
    x_candidate = x_candidate if candidate_bias is None else x_candidate + candidate_bias
    candidate = tf.tanh(x_candidate + r * candidate_sum)
    # A masked step changes h by exactly 0.
    new_h = candidate + z * (h - candidate) if moves is None else h + (1 - z) * moves * (candidate - h)
    return new_h, gates, candidate, candidate_sum


def _lstm_step(x: Tensor, sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Return the next h and c, then the gates i, f, g, o."""
    units = h.shape[1]
    total = x + sums
    i_f, o = tf.sigmoid(total[:, : 2 * units]), tf.sigmoid(total[:, 3 * units :])
    g = tf.tanh(total[:, 2 * units : 3 * units])
    new_c = i_f[:, units:] * c + i_f[:, :units] * g
    return o * tf.tanh(new_c), new_c, tf.concat([i_f, g, o], 1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply in the dtype of `b`; return the dtype of `a`."""
    return tf.cast(tf.matmul(tf.cast(a, b.dtype), b), a.dtype)


def _outer(before: Tensor, gradient: Tensor, recurrent: Tensor) -> Tensor:
    """Return the gradient of the recurrent matrix, one product over all steps, in the matrix' dtype."""
    rows = tf.reshape(tf.cast(before, recurrent.dtype), [-1, recurrent.shape[0]])
    return tf.matmul(rows, tf.cast(gradient, recurrent.dtype), transpose_a=True)


def _scan(
    step: Callable[..., tuple[tuple[Tensor, ...], tuple[Tensor, ...]]],
    initial: tuple[Tensor, ...],
    sequence: Tensor,
    widths: Sequence[int],
    *,
    reverse: bool = False,
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """Run the steps of a sequence one after the other.

    Args:
        step: function from a step's number and the states, each (batch, units), to the next states and the values to
            store, each (batch, width x units).
        initial: the states at the start.
        sequence: (steps, batch, ...), gives the number of steps and the static shape of the results.
        widths: widths of the stored values, in units.
        reverse: whether to begin with the last step.

    Returns:
        The states at the end, and the stored values, each (steps, batch, width x units).
    """
    steps, (units, dtype) = tf.shape(sequence)[0], (initial[0].shape[1], initial[0].dtype)

    def body(count: Tensor, states: tuple[Tensor, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        number = steps - 1 - count if reverse else count
        states, kept = step(number, *states)
        arrays = tuple(array.write(number, values) for array, values in zip(arrays, kept, strict=True))
        return count + 1, states, arrays

    arrays = tuple(tf.TensorArray(dtype, size=steps, element_shape=(None, width * units)) for width in widths)
    # Each step depends on the one before, so parallel iterations would only add overhead.
    _, states, arrays = tf.while_loop(
        lambda count, *_: count < steps, body, (0, initial, arrays), parallel_iterations=1
    )
    stacked = [array.stack() for array in arrays]
    for values in stacked:
        values.set_shape([*sequence.shape[:2], values.shape[2]])
    return states, stacked


#: Cell -> its loop over all steps of all rows, its step, and its number of states.
LOOPS: dict[str, tuple[Callable[..., Sequence[Tensor]], Callable[..., tuple[Tensor, ...]], int]] = {
    "gru": (gru_loop, _gru_step, 1),
    "lstm": (lstm_loop, _lstm_step, 2),
}
