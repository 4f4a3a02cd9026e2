"""The learned temperature of CLIP."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from vsemb.errors import invalid_argument

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class LogitScale(keras.layers.Layer):
    """Multiplies scores by a learned factor, 1 / temperature (CLIP, arXiv:2103.00020, section 2.5).

    Acts in training only: a positive factor does not change a ranking. Learned as its logarithm and
    clipped, as in CLIP.

    Args:
        initial: factor at the start; CLIP: 1 / 0.07.
        maximum: largest factor; CLIP: 100.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        scores: any shape, float32.

    Returns:
        The scaled scores.

    Raises:
        InvalidArgumentError: for a maximum <= 0, or an initial factor outside (0, maximum].

    Example:

    >>> round(float(LogitScale(initial=10.0)(ops.ones(()))), 3)
    10.0
    """

    def __init__(self, initial: float = 1 / 0.07, maximum: float = 100.0, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **{k: v for k, v in kwargs.items() if k != "dtype"})
        if not 0 < maximum < math.inf:
            raise invalid_argument("maximum", maximum, "a finite number > 0")
        if not 0 < initial <= maximum:
            raise invalid_argument("initial", initial, f"a number > 0 and <= maximum={maximum}")
        self.initial = initial
        self.maximum = maximum

    def build(self, input_shape: Any = None) -> None:
        # A bound on the variable and not only in `call`, whose gradient would be 0 beyond it, for ever.
        self.log_scale = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(math.log(self.initial)),
            constraint=lambda value: ops.minimum(value, math.log(self.maximum)),
            name="log_scale",
        )

    def call(self, scores: Tensor) -> Tensor:
        return scores * ops.exp(ops.minimum(self.log_scale, math.log(self.maximum)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "initial": self.initial, "maximum": self.maximum}
