"""Recurrent cells that Keras does not have: with peepholes, behind a shared input matrix, and without gates.

A matrix that all steps share is best applied to all steps at once, in front of the loop. A term that is added
to a step's input there, such as an image at the first step, needs no special cell.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import Configured

Tensor = Any


def _second_is_one(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Biases of four gates, of which the second forgets."""
    gates = ops.arange(shape[0], dtype="int32") // (shape[0] // 4)
    return ops.cast(ops.equal(gates, 1), dtype or "float32")


@keras.saving.register_keras_serializable("vsemb")
class PeepholeLSTMCell(Configured, keras.layers.Layer):
    """One step of the LSTM of Kiros, Salakhutdinov, Zemel 2014, section 2.1.

    Beside the usual weights, the gates see the cell through full matrices, and the output gate sees
    the new cell:

            I = sigmoid(x Wxi + m Whi + c Wci + bi)                    (1)
            F = sigmoid(x Wxf + m Whf + c Wcf + bf)                    (2)
            C = F * c + I * tanh(x Wxc + m Whc + bc)                   (3)
            O = sigmoid(x Wxo + m Who + C Wco + bo)                    (4)
            M = O * tanh(C)                                            (5)

    For use in `keras.layers.RNN`. The kernels are stored side by side in the order i, f, c, o, the
    peepholes in the order i, f, o.

    Args:
        units: size of the state.
        kernel_initializer: of all matrices; the paper draws from U[-0.08, 0.08].
        unit_forget_bias: whether the forget bias starts at 1 (the paper does not say).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        inputs: (batch, input_dim).
        states: [m, c], each (batch, units).

    Returns:
        (m, [m, c]).

    Example:

    >>> keras.layers.RNN(PeepholeLSTMCell(4))(ops.ones((2, 3, 5))).shape
    TensorShape([2, 4])
    """

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        unit_forget_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.state_size = [units, units]
        self.output_size = units

    def build(self, input_shape: Any) -> None:
        units, matrix = self.units, self.kernel_initializer
        self.kernel = self.add_weight(shape=(input_shape[-1], 4 * units), initializer=matrix, name="kernel")
        self.recurrent_kernel = self.add_weight(shape=(units, 4 * units), initializer=matrix, name="recurrent_kernel")
        self.peephole_kernel = self.add_weight(shape=(units, 3 * units), initializer=matrix, name="peephole_kernel")
        start = _second_is_one if self.unit_forget_bias else "zeros"
        self.bias = self.add_weight(shape=(4 * units,), initializer=start, name="bias")

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden, cell = states
        split = ops.split(
            ops.matmul(inputs, self.kernel) + ops.matmul(hidden, self.recurrent_kernel) + self.bias,
            4,
            axis=-1,
        )
        see_i, see_f, see_o = ops.split(ops.cast(self.peephole_kernel, self.compute_dtype), 3, axis=-1)
        input_gate = ops.sigmoid(split[0] + ops.matmul(cell, see_i))
        forget_gate = ops.sigmoid(split[1] + ops.matmul(cell, see_f))
        cell = forget_gate * cell + input_gate * ops.tanh(split[2])
        output_gate = ops.sigmoid(split[3] + ops.matmul(cell, see_o))
        hidden = output_gate * ops.tanh(cell)
        return hidden, [hidden, cell]


class RecurrentCell(Configured, keras.layers.Layer):
    """Base of cells whose inputs are sums that their gates read: the matrix of the inputs stands in front.

    Args:
        units: size of the state.
        recurrent_initializer: of the recurrent matrix; None for an orthogonal one.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    #: How many times `units` entries the inputs have.
    gates: ClassVar[int] = 1
    #: Biases of each input.
    biases: ClassVar[tuple[int, ...]] = ()
    bias_initializer: ClassVar[Any] = "zeros"
    #: Start of the recurrent matrix.
    start: ClassVar[Any] = "orthogonal"

    def __init__(self, units: int, recurrent_initializer: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        start = self.start if recurrent_initializer is None else recurrent_initializer
        self.recurrent_initializer = keras.initializers.get(start)
        self.state_size: Any = units
        self.output_size = units

    def build(self, input_shape: Any) -> None:
        width = self.gates * self.units
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, width), initializer=self.recurrent_initializer, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(*self.biases, width), initializer=self.bias_initializer, name="bias")


@keras.saving.register_keras_serializable("vsemb")
class ProjectedGRUCell(RecurrentCell):
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
    # One bias of the inputs, and one of the state, of which the reset gate lets only a share through.
    biases = (2,)

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
class ProjectedLSTMCell(RecurrentCell):
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
    bias_initializer = staticmethod(_second_is_one)

    def __init__(self, units: int, recurrent_initializer: Any = None, **kwargs: Any) -> None:
        super().__init__(units, recurrent_initializer, **kwargs)
        self.state_size = [units, units]

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden, memory = states
        sums = inputs + ops.matmul(hidden, self.recurrent_kernel) + self.bias
        enter, forget, candidate, leave = ops.split(sums, 4, axis=-1)
        memory = ops.sigmoid(forget) * memory + ops.sigmoid(enter) * ops.tanh(candidate)
        hidden = ops.sigmoid(leave) * ops.tanh(memory)
        return hidden, [hidden, memory]


@keras.saving.register_keras_serializable("vsemb", name="RectifiedCell")
class ReLUCell(RecurrentCell):
    """One step of h_t = max(0, e_t + W h_{t-1} + b) (Karpathy, Fei-Fei 2015, equation 4).

    For use in `keras.layers.RNN`. Unlike `keras.layers.SimpleRNN` it has no matrix of its own for the
    inputs, since both directions of the paper's network read the same e_t.

    A ReLU bounds nothing, so that a state grows with the powers of W. The identity, the usual start, makes a
    sum of all words so far where the inputs are ReLUs themselves and have no negative entry: after 20 words
    it is twelve times as long as one of them and nearly the same at every word, and regions are found for
    the sentence instead of the word. Half an orthogonal matrix keeps every state below twice the longest
    input and most of it the word's own; what a sentence needs of its context is learned.

    Args:
        units: size of the state and of the inputs.
        recurrent_initializer: of W; None starts with half an orthogonal matrix.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        inputs: (batch, units), e_t.
        states: [h], (batch, units).

    Returns:
        (h, [h]).

    Example: W is the identity and b is 0, so 3 - 4 is cut off at 0 in front of the last step.

    >>> cell = ReLUCell(1, recurrent_initializer="identity")
    >>> layer = keras.layers.RNN(cell, return_sequences=True)
    >>> layer(ops.array([[[1.0], [2.0], [-4.0], [5.0]]])).numpy().ravel().tolist()
    [1.0, 3.0, 0.0, 5.0]
    """

    start = {"class_name": "Orthogonal", "config": {"gain": 0.5}}

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden = ops.relu(inputs + ops.matmul(states[0], self.recurrent_kernel) + self.bias)
        return hidden, [hidden]
