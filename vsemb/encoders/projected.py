"""Gated recurrent cells whose inputs have passed their matrix already.

A matrix that all steps share is best applied to all of them at once, in front of the loop; and what is added
to a step's input there, such as an image at the first, needs no cell of its own.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


class ProjectedCell(keras.layers.Layer):
    """Base of the cells: `keras.layers.RNN` runs them over sums that the gates read.

    Args:
        units: size of the state.
        recurrent_initializer: of the recurrent matrix.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    #: How many times `units` entries the inputs have.
    gates: int

    def __init__(self, units: int, recurrent_initializer: Any = "orthogonal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.state_size: Any = units
        self.output_size = units

    def build(self, input_shape: Any) -> None:
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, self.gates * self.units),
            initializer=self.recurrent_initializer,
            name="recurrent_kernel",
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
        }


@keras.saving.register_keras_serializable("vsemb")
class ProjectedGRUCell(ProjectedCell):
    """One step of `keras.layers.GRU` (with `reset_after`) behind its input matrix.

    Call args:
        inputs: (batch, 3 units): of the update gate, the reset gate and the candidate.
        states: [h], (batch, units).

    Returns:
        (h, [h]).

    Example:

    >>> keras.layers.RNN(ProjectedGRUCell(4))(ops.ones((2, 3, 12))).shape
    TensorShape([2, 4])
    """

    gates = 3

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        # One bias of the inputs, and one of the state, of which the reset gate lets only a share through.
        self.bias = self.add_weight(shape=(2, 3 * self.units), initializer="zeros", name="bias")

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        (hidden,) = states
        update, reset, candidate = ops.split(inputs + self.bias[0], 3, axis=-1)
        inner = ops.matmul(hidden, self.recurrent_kernel) + self.bias[1]
        inner_update, inner_reset, inner_candidate = ops.split(inner, 3, axis=-1)
        update = ops.sigmoid(update + inner_update)
        candidate = ops.tanh(candidate + ops.sigmoid(reset + inner_reset) * inner_candidate)
        hidden = update * hidden + (1.0 - update) * candidate
        return hidden, [hidden]


@keras.saving.register_keras_serializable("vsemb")
class ProjectedLSTMCell(ProjectedCell):
    """One step of `keras.layers.LSTM` behind its input matrix; the forget gate's bias starts at 1.

    Call args:
        inputs: (batch, 4 units): of the input gate, the forget gate, the candidate and the output gate.
        states: [h, c], (batch, units) each.

    Returns:
        (h, [h, c]).

    Example:

    >>> keras.layers.RNN(ProjectedLSTMCell(4))(ops.ones((2, 3, 16))).shape
    TensorShape([2, 4])
    """

    gates = 4

    def __init__(self, units: int, recurrent_initializer: Any = "orthogonal", **kwargs: Any) -> None:
        super().__init__(units, recurrent_initializer, **kwargs)
        self.state_size = [units, units]

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.bias = self.add_weight(shape=(4 * self.units,), initializer=self._first_bias, name="bias")

    def _first_bias(self, shape: Any, dtype: Any = None) -> Tensor:
        entries = ops.arange(shape[0], dtype="int32") // self.units
        return ops.cast(ops.equal(entries, 1), dtype or "float32")

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden, memory = states
        sums = inputs + ops.matmul(hidden, self.recurrent_kernel) + self.bias
        enter, forget, candidate, leave = ops.split(sums, 4, axis=-1)
        memory = ops.sigmoid(forget) * memory + ops.sigmoid(enter) * ops.tanh(candidate)
        hidden = ops.sigmoid(leave) * ops.tanh(memory)
        return hidden, [hidden, memory]
