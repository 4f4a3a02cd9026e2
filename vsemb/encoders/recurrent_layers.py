"""Keras' GRU and LSTM, on a CPU with the loops of `vsemb.ops.recurrent_loops`, which are faster there."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.ops.backend import has_gpu

Tensor = Any

#: Dtype of the matrix products -> that of the state and of everything elementwise.
_STATE_DTYPES = {"float32": "float32", "bfloat16": "float32", "float64": "float64"}


@keras.saving.register_keras_serializable("vsemb")
class GRU(keras.layers.GRU):
    """`keras.layers.GRU`: same arguments, weights and results up to rounding, faster on a CPU.

    On TensorFlow without a GPU, the loop over the steps has a gradient of its own, costs nothing for padding
    outside training and, with bfloat16, keeps its state in float32. Everywhere else, and with options that
    the loop does not have (dropout, other activations, `reset_after=False`, `unroll`), it is Keras'.

    Example:

    >>> GRU(4)(ops.ones((2, 3, 5))).shape
    TensorShape([2, 4])
    """

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool = False) -> Any:
        if not (self.reset_after and _own_loop_serves(self, training)):
            return super().inner_loop(sequences, initial_state, mask, training)
        from vsemb.ops.recurrent_loops import gru_loop, gru_over_words

        inputs, mask = _time_first(self, sequences, mask)
        biases = tuple(ops.unstack(ops.cast(self.cell.bias, _state_dtype(self)), 2))
        initial, recurrent = ops.cast(initial_state[0], _state_dtype(self)), _recurrent(self)

        def sums_of(inputs: Tensor) -> Tensor:
            return _input_sums(self, inputs)

        def whole(mask: Tensor | None) -> Tensor:
            return gru_loop(sums_of(inputs), recurrent, biases, mask, initial, training)

        def over_words() -> Tensor:
            return gru_over_words(inputs, mask, sums_of, recurrent, biases, initial)

        states = _either(whole, over_words, mask, training)
        return _outputs(self, states, mask, [states[-1]])


@keras.saving.register_keras_serializable("vsemb")
class LSTM(keras.layers.LSTM):
    """`keras.layers.LSTM`: same arguments, weights and results up to rounding, faster on a CPU.

    See `GRU` for when.

    Example:

    >>> LSTM(4)(ops.ones((2, 3, 5))).shape
    TensorShape([2, 4])
    """

    def inner_loop(self, sequences: Tensor, initial_state: Any, mask: Any, training: bool = False) -> Any:
        if not _own_loop_serves(self, training):
            return super().inner_loop(sequences, initial_state, mask, training)
        from vsemb.ops.recurrent_loops import lstm_loop, lstm_over_words

        inputs, mask = _time_first(self, sequences, mask)
        bias, recurrent = ops.cast(self.cell.bias, _state_dtype(self)), _recurrent(self)
        hidden, memory = (ops.cast(state, _state_dtype(self)) for state in initial_state)

        def sums_of(inputs: Tensor) -> Tensor:
            return _input_sums(self, inputs) + bias

        def whole(mask: Tensor | None) -> tuple[Tensor, Tensor]:
            return lstm_loop(sums_of(inputs), recurrent, mask, (hidden, memory), training)

        def over_words() -> tuple[Tensor, Tensor]:
            return lstm_over_words(inputs, mask, sums_of, recurrent, (hidden, memory))

        states, cells = _either(whole, over_words, mask, training)
        return _outputs(self, states, mask, [states[-1], cells[-1]])


def _either(whole: Any, over_words: Any, mask: Tensor | None, training: bool) -> Any:
    """Runs the loop over all steps of all rows, or where there is padding, outside training, over words."""
    if training or mask is None:
        # Batches of training have sentences of nearly one length.
        return whole(mask)
    return ops.cond(ops.all(mask), lambda: whole(None), over_words)


def _own_loop_serves(layer: GRU | LSTM, training: bool) -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    activations = [keras.activations.serialize(f) for f in (layer.activation, layer.recurrent_activation)]
    return (
        activations == ["tanh", "sigmoid"]
        and layer.use_bias
        and layer.compute_dtype in _STATE_DTYPES
        and not layer.unroll
        and not (training and (layer.dropout or layer.recurrent_dropout))
        and layer.use_cudnn is not True
        and not has_gpu()
    )


def _state_dtype(layer: GRU | LSTM) -> str:
    return _STATE_DTYPES[layer.compute_dtype]


def _recurrent(layer: GRU | LSTM) -> Tensor:
    return ops.cast(layer.cell.recurrent_kernel, layer.compute_dtype)


def _time_first(layer: GRU | LSTM, sequences: Tensor, mask: Any) -> tuple[Tensor, Tensor | None]:
    """Returns (steps, batch, size) and a mask (steps, batch, 1), in the order in which they are read."""
    mask = mask[0] if isinstance(mask, (list, tuple)) else mask
    inputs = ops.transpose(sequences, (1, 0, 2))
    if mask is not None:
        mask = ops.expand_dims(ops.transpose(ops.cast(mask, "bool")), -1)
    if layer.go_backwards:
        inputs = ops.flip(inputs, axis=0)
        mask = None if mask is None else ops.flip(mask, axis=0)
    return inputs, mask


def _input_sums(layer: GRU | LSTM, inputs: Tensor) -> Tensor:
    """Returns what inputs (..., size) add to the gates: one product, in the state's dtype."""
    kernel = ops.cast(layer.cell.kernel, layer.compute_dtype)
    flat = ops.reshape(ops.cast(inputs, layer.compute_dtype), (-1, inputs.shape[-1]))
    sums = ops.cast(ops.matmul(flat, kernel), _state_dtype(layer))
    return ops.reshape(sums, (*ops.shape(inputs)[:-1], kernel.shape[1]))


def _outputs(layer: GRU | LSTM, states: Tensor, mask: Tensor | None, last: list[Tensor]) -> Any:
    """Returns what `RNN.inner_loop` does: the last output, all outputs, the last states."""
    if not layer.return_sequences:
        return last[0], ops.expand_dims(last[0], 1), last
    if layer.zero_output_for_mask and mask is not None:
        states = ops.where(mask, states, ops.zeros((), states.dtype))
    return last[0], ops.transpose(states, (1, 0, 2)), last
