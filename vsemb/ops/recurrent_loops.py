"""The loops of `vsemb.encoders.recurrent_layers` on TensorFlow, with gradients of their own.

The gradient of a `while_loop` adds up a gradient of the recurrent matrix at every step and keeps every
intermediate result; here one product after the loop gives that matrix' gradient, and a step keeps its gates
alone. What the gradient keeps are plain tensors: `tf.saved_model.save` cannot write arrays of tensors.

Products are computed in the dtype of `recurrent`, everything else in that of `inputs`: with bfloat16 matrices
the state is rounded where it is multiplied and not where it is carried on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tensor = Any


def has_gpu() -> bool:
    """Tells whether TensorFlow computes on a GPU, where Keras takes cuDNN's loops."""
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


def gru_loop(
    inputs: Tensor,
    recurrent: Tensor,
    biases: tuple[Tensor, Tensor],
    mask: Tensor | None,
    initial: Tensor,
    training: bool,
) -> Tensor:
    """Runs a GRU with `reset_after`, as Keras and cuDNN define it, on products of the inputs.

        z = sigmoid(x_z + a_z + h U_z + b_z)     r = sigmoid(x_r + a_r + h U_r + b_r)
        h' = h + (1 - z) (tanh(x_h + a_h + r (h U_h + b_h)) - h)

    Args:
        inputs: (steps, batch, 3 units) float32 or float64, x_z, x_r, x_h side by side.
        recurrent: (units, 3 units), also bfloat16.
        biases: a of the inputs and b of the state, each (3 units,) of the dtype of `inputs`.
        mask: (steps, batch, 1) bool, false where h stays as it is; None for true throughout.
        initial: (batch, units) of the dtype of `inputs`.
        training: whether to keep what the gradient needs; without it, TensorFlow finds a slower one.

    Returns:
        (steps, batch, units).
    """
    import tensorflow as tf

    moves = None if mask is None else tf.cast(mask, inputs.dtype)

    def run(x: Tensor, recurrent: Tensor, biases: Any, initial: Tensor, widths: tuple[int, ...]) -> list[Any]:
        merged = _merged(*biases)

        def step(x: Tensor, h: Tensor, number: Tensor) -> tuple[Tensor, ...]:
            moving = None if moves is None else moves[number]
            # Only h goes on to the next step; the rest is kept.
            return _gru_step(x, h, recurrent, *merged, moving)[: 1 + len(widths)]

        return _run(step, x, (initial,), widths, with_number=True)

    if not training:
        return run(inputs, recurrent, biases, initial, ())[0]

    @tf.custom_gradient
    def states(inputs: Tensor, recurrent: Tensor, a: Tensor, b: Tensor, initial: Tensor) -> tuple[Any, Any]:
        h, gates, candidates, sums = run(inputs, recurrent, (a, b), initial, (2, 1, 1))
        before = tf.concat([initial[None], h[:-1]], 0)
        units = recurrent.shape[0]
        transposed = tf.transpose(recurrent)  # once: a product that transposes takes twice as long

        def back(d_h: Tensor, kept: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            h, gates, candidate, candidate_sum, *moving = kept
            z, r = gates[:, :units], gates[:, units:]
            moved = d_h * (1 - z) * moving[0] if moving else d_h * (1 - z)
            d_candidate = moved * (1 - candidate * candidate)
            d_z = moved * (h - candidate) * z
            d_r = d_candidate * candidate_sum * r * (1 - r)
            d_inner = tf.concat([d_z, d_r, d_candidate * r], 1)
            d_before = d_h - moved + _product(d_inner, transposed)
            return d_before, d_inner, d_candidate

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            kept = (before, gates, candidates, sums, *(() if moves is None else (moves,)))
            (d_initial,), (d_inner, d_candidates) = _run_back(
                lambda d, kept: _split(back(d[0], kept), 1), upstream, kept, 1, (3, 1)
            )
            # What a gate adds up, it adds up alike; the candidate's inner sum is multiplied by r first.
            d_inputs = tf.concat([d_inner[:, :, : 2 * units], d_candidates], 2)
            d_inner = tf.reshape(d_inner, [-1, 3 * units])
            d_b = tf.reduce_sum(d_inner, 0)
            d_a = tf.concat([d_b[: 2 * units], tf.reduce_sum(d_candidates, [0, 1])], 0)
            return d_inputs, _outer(before, d_inner, recurrent), d_a, d_b, d_initial

        return h, gradient

    return states(inputs, recurrent, *biases, initial)


def lstm_loop(
    inputs: Tensor,
    recurrent: Tensor,
    mask: Tensor | None,
    initial: tuple[Tensor, Tensor],
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Runs an LSTM on sums of the inputs.

        i, f, o = sigmoid(x + h U)     g = tanh(x_g + h U_g)
        c' = f c + i g                 h' = o tanh(c')

    Args:
        inputs: (steps, batch, 4 units) float32 or float64, in Keras' order i, f, g, o.
        recurrent: (units, 4 units), also bfloat16.
        mask: (steps, batch, 1) bool, false where h and c stay as they are; None for true throughout.
        initial: h and c, each (batch, units) of the dtype of `inputs`.
        training: as in `gru_loop`.

    Returns:
        h and c, each (steps, batch, units).
    """
    import tensorflow as tf

    steps = tf.shape(inputs)[0]

    def at(number: Tensor, new: Tensor, old: Tensor) -> Tensor:
        return new if mask is None else tf.where(mask[number], new, old)

    def step(x: Tensor, h: Tensor, c: Tensor, number: Tensor, recurrent: Tensor) -> tuple[Tensor, ...]:
        new_h, new_c, gates = _lstm_step(x, h, c, recurrent)
        return at(number, new_h, h), at(number, new_c, c), gates

    def numbered(recurrent: Tensor, keep: int) -> Callable[..., tuple[Tensor, ...]]:
        return lambda x, h, c, number: step(x, h, c, number, recurrent)[:keep]

    if not training:
        h, c = _run(numbered(recurrent, 2), inputs, initial, with_number=True)
        return h, c

    @tf.custom_gradient
    def states(inputs: Tensor, recurrent: Tensor, h0: Tensor, c0: Tensor) -> tuple[Any, Any]:
        h, c, gates = _run(numbered(recurrent, 3), inputs, (h0, c0), widths=(4,), with_number=True)
        h_before = tf.concat([h0[None], h[:-1]], 0)
        c_before = tf.concat([c0[None], c[:-1]], 0)
        units = recurrent.shape[0]
        transposed = tf.transpose(recurrent)

        def back(d: tuple[Tensor, ...], kept: tuple[Tensor, ...]) -> tuple[Any, Any]:
            number, c_before, c, gates = kept
            d_h, d_c = (at(number, value, tf.zeros_like(value)) for value in d)
            i, f, g, o = tf.split(gates, 4, 1)
            tanh_c = tf.tanh(c)
            inside_c = d_c + d_h * o * (1 - tanh_c * tanh_c)
            d_total = tf.concat(
                [
                    inside_c * g * i * (1 - i),
                    inside_c * c_before * f * (1 - f),
                    inside_c * i * (1 - g * g),
                    d_h * tanh_c * o * (1 - o),
                ],
                1,
            )
            d_before = at(number, _product(d_total, transposed), d[0])
            return (d_before, at(number, inside_c * f, d[1])), (d_total,)

        def gradient(up_h: Tensor, up_c: Tensor) -> tuple[Tensor, ...]:
            kept = (tf.range(steps), c_before, c, gates)
            (d_h0, d_c0), (d_total,) = _run_back(back, (up_h, up_c), kept, 2, (4,))
            flat = tf.reshape(d_total, [-1, 4 * units])
            return d_total, _outer(h_before, flat, recurrent), d_h0, d_c0

        return (h, c), gradient

    h, c = states(inputs, recurrent, *initial)
    return h, c


def gru_over_words(
    inputs: Tensor,
    mask: Tensor,
    sums_of: Callable[[Tensor], Tensor],
    recurrent: Tensor,
    biases: tuple[Tensor, Tensor],
    initial: Tensor,
) -> Tensor:
    """`gru_loop` without training, where padding costs nothing: only what `mask` shows is multiplied.

    Args:
        inputs: (steps, batch, size).
        mask: (steps, batch, 1) bool, false where h stays as it is.
        sums_of: (n, size) of `inputs` to the (n, 3 units) that `gru_loop` reads.
        recurrent, biases, initial: as in `gru_loop`.

    Returns:
        (steps, batch, units).
    """
    merged = _merged(*biases)
    (states,) = _run_packed(lambda x, h: _gru_step(x, h, recurrent, *merged)[:1], inputs, mask, sums_of, (initial,))
    return states


def lstm_over_words(
    inputs: Tensor,
    mask: Tensor,
    sums_of: Callable[[Tensor], Tensor],
    recurrent: Tensor,
    initial: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """`lstm_loop` without training, where padding costs nothing; see `gru_over_words`."""
    h, c = _run_packed(lambda x, h, c: _lstm_step(x, h, c, recurrent)[:2], inputs, mask, sums_of, initial)
    return h, c


def _merged(of_inputs: Tensor, of_state: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a GRU's biases as a step adds them: to the product of the state, and to the candidate."""
    import tensorflow as tf

    gates = 2 * of_state.shape[0] // 3
    return of_state + tf.concat([of_inputs[:gates], tf.zeros_like(of_inputs[gates:])], 0), of_inputs[gates:]


def _gru_step(
    x: Tensor,
    h: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    candidate_bias: Tensor,
    moves: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Returns the next h, then the gates, the candidate and its inner sum, which the gradient needs."""
    import tensorflow as tf

    sizes = (2 * h.shape[1], h.shape[1])
    x_gates, x_candidate = tf.split(x, sizes, 1)
    gate_sums, candidate_sum = tf.split(_product(h, recurrent) + bias, sizes, 1)
    gates = tf.sigmoid(x_gates + gate_sums)
    z, r = tf.split(gates, 2, 1)
    candidate = tf.tanh(x_candidate + candidate_bias + r * candidate_sum)
    # A step that is masked moves by exactly 0.
    share = 1 - z if moves is None else (1 - z) * moves
    return h + share * (candidate - h), gates, candidate, candidate_sum


def _lstm_step(x: Tensor, h: Tensor, c: Tensor, recurrent: Tensor) -> tuple[Tensor, ...]:
    """Returns the next h and c, then the gates i, f, g, o."""
    import tensorflow as tf

    units = h.shape[1]
    total = x + _product(h, recurrent)
    i_f, o = tf.sigmoid(total[:, : 2 * units]), tf.sigmoid(total[:, 3 * units :])
    g = tf.tanh(total[:, 2 * units : 3 * units])
    new_c = i_f[:, units:] * c + i_f[:, :units] * g
    return o * tf.tanh(new_c), new_c, tf.concat([i_f, g, o], 1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiplies in the dtype of `b`, and returns that of `a`."""
    import tensorflow as tf

    return tf.cast(tf.matmul(tf.cast(a, b.dtype), b), a.dtype)


def _outer(before: Tensor, gradient: Tensor, recurrent: Tensor) -> Tensor:
    """Returns the gradient of the recurrent matrix: one product over all steps, in its dtype."""
    import tensorflow as tf

    rows = tf.reshape(tf.cast(before, recurrent.dtype), [-1, recurrent.shape[0]])
    return tf.matmul(rows, tf.cast(gradient, recurrent.dtype), transpose_a=True)


def _split(values: tuple[Tensor, ...], carried: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    return values[:carried], values[carried:]


def _run(
    step: Callable[..., tuple[Tensor, ...]],
    inputs: Tensor,
    initial: tuple[Tensor, ...],
    widths: tuple[int, ...] = (),
    with_number: bool = False,
) -> list[Tensor]:
    """Runs the steps: `step` returns the next states, then what is kept, so many units wide."""
    import tensorflow as tf

    steps, units = tf.shape(inputs)[0], initial[0].shape[1]

    def body(number: Tensor, carried: tuple[Tensor, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        extra = (number,) if with_number else ()
        values = step(inputs[number], *carried, *extra)
        written = tuple(array.write(number, value) for array, value in zip(arrays, values, strict=True))
        return number + 1, values[: len(carried)], written

    arrays = _arrays(inputs.dtype, steps, [units * width for width in (*(1 for _ in initial), *widths)])
    # Steps depend on one another: looking ahead for some to run side by side only costs.
    loop = tf.while_loop(lambda number, *_: number < steps, body, (0, initial, arrays), parallel_iterations=1)
    return [_stacked(array, inputs) for array in loop[2]]


def _run_packed(
    step: Callable[..., tuple[Tensor, ...]],
    inputs: Tensor,
    mask: Tensor,
    sums_of: Callable[[Tensor], Tensor],
    initial: tuple[Tensor, ...],
) -> list[Tensor]:
    """Runs the steps, each on the rows of the batch that its mask shows."""
    import tensorflow as tf

    shown = tf.squeeze(mask, 2)
    places = tf.where(shown)  # (n, 2), by steps
    sums = sums_of(tf.gather_nd(inputs, places))
    ends = tf.cumsum(tf.reduce_sum(tf.cast(shown, tf.int32), 1))
    rows, steps = places[:, 1:], tf.shape(inputs)[0]

    def body(number: Tensor, start: Tensor, carried: tuple[Tensor, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        end = ends[number]
        these = rows[start:end]
        values = step(sums[start:end], *(tf.gather_nd(state, these) for state in carried))
        carried = tuple(
            tf.tensor_scatter_nd_update(state, these, value) for state, value in zip(carried, values, strict=True)
        )
        written = tuple(array.write(number, state) for array, state in zip(arrays, carried, strict=True))
        return number + 1, end, carried, written

    arrays = _arrays(sums.dtype, steps, [state.shape[1] for state in initial])
    loop = tf.while_loop(lambda number, *_: number < steps, body, (0, 0, initial, arrays), parallel_iterations=1)
    return [_stacked(array, inputs) for array in loop[3]]


def _run_back(
    step: Callable[..., tuple[tuple[Tensor, ...], tuple[Tensor, ...]]],
    upstream: Any,
    kept: tuple[Tensor, ...],
    states: int,
    widths: tuple[int, ...],
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """Runs the steps backwards: gradients of the states before the first, and of what each step read."""
    import tensorflow as tf

    upstream = upstream if isinstance(upstream, (tuple, list)) else (upstream,)
    steps, units = tf.shape(upstream[0])[0], upstream[0].shape[2]

    def body(number: Tensor, carried: tuple[Tensor, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        total = tuple(d + up[number] for d, up in zip(carried, upstream, strict=True))
        carried, values = step(total, tuple(value[number] for value in kept))
        written = tuple(array.write(number, value) for array, value in zip(arrays, values, strict=True))
        return number - 1, carried, written

    zeros = tuple(tf.zeros_like(upstream[0][0]) for _ in range(states))
    arrays = _arrays(upstream[0].dtype, steps, [units * width for width in widths])
    loop = tf.while_loop(lambda number, *_: number >= 0, body, (steps - 1, zeros, arrays), parallel_iterations=1)
    return loop[1], [_stacked(array, upstream[0]) for array in loop[2]]


def _arrays(dtype: Any, steps: Tensor, widths: list[int]) -> tuple[Any, ...]:
    import tensorflow as tf

    return tuple(tf.TensorArray(dtype, size=steps, element_shape=(None, width)) for width in widths)


def _stacked(array: Any, like: Tensor) -> Tensor:
    """Stacks what the steps wrote, with the static sizes that the loop's input had."""
    stacked = array.stack()
    stacked.set_shape([*like.shape[:2], stacked.shape[2]])
    return stacked
