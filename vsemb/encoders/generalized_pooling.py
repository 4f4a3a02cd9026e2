"""Generalized pooling operator: learned weights of the largest entry, the second largest, and so on (Chen et al. 2021,
VSE infinity, arXiv:2011.04305)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.pooling import Tensor
from vsemb.parts import Positive, Size

# A finite stand-in for minus infinity, see `vsemb.encoders.pooling`.
_LOWEST = -1e30


@keras.saving.register_keras_serializable("vsemb")
class GeneralizedPooling(Configured, keras.layers.Layer):
    """Reduce a sequence of states to one vector: a weighted sum of each dimension's entries, the largest first.

    When to use it: if neither the mean nor the maximum is the right pooling. Both are special cases: equal weights, and
    the first weight alone; so are sums of the k largest entries. Weights depend on the number of steps and not on the
    states (section 3.3): for K steps, a recurrent network in both directions reads the positions 1 to K as sines and
    cosines, and a softmax of its outputs gives K weights.

    Args:
        positions: size of the code of a position; 32 in the paper.
        units: size of the recurrent state; 32 in the paper.
        temperature: divisor of the scores before the softmax; 0.1 in the released code.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        states: (batch, steps, dim) float.
        mask: (batch, steps) bool, false for padding, on the right; None if all rows have all steps, as the cells of a
            map do.

    Returns:
        (batch, dim); zero for a row without steps.

    Example:

    >>> layer = GeneralizedPooling()
    >>> layer(ops.ones((2, 3, 4)), ops.ones((2, 3), "bool")).shape
    TensorShape([2, 4])
    """

    def __init__(self, positions: Size = 32, units: Size = 32, temperature: Positive = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.supports_masking = True
        gru = keras.layers.GRU(units, return_sequences=True, dtype=self.dtype_policy)
        self.decoder = keras.layers.Bidirectional(gru, merge_mode="ave", dtype=self.dtype_policy)
        self.score = keras.layers.Dense(1, use_bias=False, dtype=self.dtype_policy, name="score")

    def build(self, states_shape: Any, mask_shape: Any = None) -> None:
        build_layers((self.decoder, (None, None, self.positions)), (self.score, (None, None, self.units)))

    def compute_mask(self, *args: Any, **kwargs: Any) -> None:
        """Return None: the output has no steps to mask."""

    def call(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        steps = ops.shape(states)[1]
        if mask is None:
            weights = self._weights(ops.arange(steps), ops.ones((1, steps), "bool"))  # (1, steps)
            return ops.sum(-ops.sort(-states, axis=1) * ops.expand_dims(weights, -1), axis=1)
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1)  # (batch,)
        # Row n has the weights of n steps; batches have more rows than lengths.
        weights = ops.take(self.weights_of_lengths(steps), lengths, axis=0)  # (batch, steps)
        ordered = ops.where(ops.expand_dims(mask, -1), states, ops.cast(_LOWEST, states.dtype))
        ordered = -ops.sort(-ordered, axis=1)
        counted = ops.expand_dims(ops.expand_dims(ops.arange(steps), 0) < ops.expand_dims(lengths, 1), -1)
        return ops.sum(ops.where(counted, ordered, 0) * ops.expand_dims(weights, -1), axis=1)

    def weights_of_lengths(self, steps: int | Tensor) -> Tensor:
        """Return the weights for 0 to `steps` steps, (steps + 1, steps); the first row is zero.

        Args:
            steps: the largest number of steps.
        """
        place = ops.arange(steps)
        # From one step on: cuDNN refuses rows without steps.
        counted = ops.expand_dims(place, 0) <= ops.expand_dims(place, 1)
        return ops.pad(self._weights(place, counted), [[1, 0], [0, 0]])

    def _weights(self, place: Tensor, counted: Tensor) -> Tensor:
        """Return the weights of rows whose first steps are counted, (rows, steps), of `counted` of that shape."""
        codes = ops.broadcast_to(self._codes(place), (*ops.shape(counted), self.positions))
        scores = ops.cast(self.score(self.decoder(codes, mask=counted))[..., 0], "float32") / self.temperature
        scores = ops.where(counted, scores, _LOWEST)
        # Keras' softmax warns where all texts have one word.
        weights = ops.exp(scores - ops.logsumexp(scores, axis=1, keepdims=True))
        return ops.cast(ops.where(counted, weights, 0.0), self.compute_dtype)

    def _codes(self, place: Tensor) -> Tensor:
        """Return the codes of positions from 1 on, (steps, positions): sines in even places, cosines in odd ones."""
        number = np.arange(self.positions)
        rates = np.power(10000.0, -2.0 * (number // 2) / self.positions).astype(np.float32)
        angles = ops.expand_dims(ops.cast(place + 1, "float32"), 1) * rates
        return ops.cast(ops.where(number % 2 == 0, ops.sin(angles), ops.cos(angles)), self.compute_dtype)

    def compute_output_shape(self, states_shape: Any, mask_shape: Any = None) -> tuple[Any, Any]:
        return states_shape[0], states_shape[-1]
