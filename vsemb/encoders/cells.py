"""Recurrent cells that Keras does not provide: with peepholes, with a separate input matrix, and without gates.

The input matrix is applied to all steps at once, before the loop, which is faster. A term for some steps, such as an
image at the first step, can be added to these inputs without a special cell.
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

    In addition to the usual inputs, the gates read the cell through full matrices, and the output gate reads the new
    cell:

            I = sigmoid(x Wxi + m Whi + c Wci + bi)                    (1)
            F = sigmoid(x Wxf + m Whf + c Wcf + bf)                    (2)
            C = F * c + I * tanh(x Wxc + m Whc + bc)                   (3)
            O = sigmoid(x Wxo + m Who + C Wco + bo)                    (4)
            M = O * tanh(C)                                            (5)

    For use in `keras.layers.RNN`. The kernels are stored side by side in the order i, f, c, o, the
    peepholes in the order i, f, o.

    Args:
        units: size of the state.
        kernel_initializer: initializer of all matrices; U[-0.08, 0.08] in the paper.
        unit_forget_bias: whether the forget bias starts at 1; the paper does not specify it.
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
    """Base of cells without an input matrix: their inputs are the products that the gates read.

    Args:
        units: size of the state.
        recurrent_initializer: initializer of the recurrent matrix; None for orthogonal.
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
    """One step of `keras.layers.GRU` (with `reset_after`), after its input matrix.

    Call args:
        inputs: (batch, 3 units), for the update gate, the reset gate and the candidate.
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
    """One step of `keras.layers.LSTM`, after its input matrix; the bias of the forget gate starts at 1.

    Call args:
        inputs: (batch, 4 units), for the input gate, the forget gate, the candidate and the output gate.
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

    For use in `keras.layers.RNN`. Unlike `keras.layers.SimpleRNN`, it has no input matrix, because both directions of
    the paper's network read the same e_t.

    A ReLU is not bounded, so the state can grow with the powers of W. The inputs are non-negative. With the identity,
    the usual initial value, the state is the sum of all words so far. After 20 words it is twelve times as long as the
    vector of a word and nearly the same at every word, so all words would find the same region. With half an orthogonal
    matrix, a state is at most twice as long as the longest input, and depends mostly on its own word.

    Args:
        units: size of the state and of the inputs.
        recurrent_initializer: initializer of W; None for half an orthogonal matrix.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        inputs: (batch, units), e_t.
        states: [h], (batch, units).

    Returns:
        (h, [h]).

    Example: W is the identity and b is 0, so 3 - 4 becomes 0 at the third step.

    >>> cell = ReLUCell(1, recurrent_initializer="identity")
    >>> layer = keras.layers.RNN(cell, return_sequences=True)
    >>> layer(ops.array([[[1.0], [2.0], [-4.0], [5.0]]])).numpy().ravel().tolist()
    [1.0, 3.0, 0.0, 5.0]
    """

    start = {"class_name": "Orthogonal", "config": {"gain": 0.5}}

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden = ops.relu(inputs + ops.matmul(states[0], self.recurrent_kernel) + self.bias)
        return hidden, [hidden]
