"""The recurrence of a rectified network without gates, equations 4 and 5 of Karpathy and Fei-Fei 2015."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


@keras.saving.register_keras_serializable("vsemb", name="RectifiedCell")
class ReLUCell(keras.layers.Layer):
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

    def __init__(self, units: int, recurrent_initializer: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.recurrent_initializer = (
            keras.initializers.Orthogonal(gain=0.5)
            if recurrent_initializer is None
            else keras.initializers.get(recurrent_initializer)
        )
        self.state_size = units
        self.output_size = units

    def build(self, input_shape: Any) -> None:
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, self.units), initializer=self.recurrent_initializer, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, inputs: Tensor, states: Any, training: bool = False) -> Any:
        hidden = ops.relu(inputs + ops.matmul(states[0], self.recurrent_kernel) + self.bias)
        return hidden, [hidden]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
        }
