"""LSTM with full peephole matrices, equations 1-5 of Kiros et al. 2014."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class PeepholeLSTMCell(keras.layers.Layer):
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
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.unit_forget_bias = unit_forget_bias
        self.state_size = [units, units]
        self.output_size = units

    def build(self, input_shape: Any) -> None:
        units, matrix = self.units, self.kernel_initializer
        self.kernel = self.add_weight(shape=(input_shape[-1], 4 * units), initializer=matrix, name="kernel")
        self.recurrent_kernel = self.add_weight(shape=(units, 4 * units), initializer=matrix, name="recurrent_kernel")
        self.peephole_kernel = self.add_weight(shape=(units, 3 * units), initializer=matrix, name="peephole_kernel")
        self.bias = self.add_weight(shape=(4 * units,), initializer=self._initial_bias, name="bias")

    def _initial_bias(self, shape: Any, dtype: Any = None) -> Tensor:
        forget = ops.ones((self.units,), dtype) * float(self.unit_forget_bias)
        zeros = ops.zeros((self.units,), dtype)
        return ops.concatenate([zeros, forget, zeros, zeros])

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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "unit_forget_bias": self.unit_forget_bias,
        }
