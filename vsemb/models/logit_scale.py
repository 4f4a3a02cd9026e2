"""The learned temperature of CLIP, and the bias that SigLIP learns beside it."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument
from vsemb.parts import Finite, Positive

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class LogitScale(Configured, keras.layers.Layer):
    """Multiplies scores by a learned factor, 1 / temperature (CLIP, arXiv:2103.00020, section 2.5).

    Acts in training only: a positive factor does not change a ranking. Learned as its logarithm and
    clipped, as in CLIP.

    Args:
        initial: factor at the start; CLIP: 1 / 0.07.
        maximum: largest factor; CLIP: 100.
        bias: start of a learned number added to the scaled scores, for `SigmoidLoss` (SigLIP,
            arXiv:2303.15343, section 3.2: -10, with a factor of 10); None for none.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        scores: any shape, float32.

    Returns:
        The scaled scores.

    Raises:
        InvalidArgumentError: for a maximum <= 0, an initial factor outside (0, maximum], or an infinite bias.

    Example:

    >>> round(float(LogitScale(initial=10.0)(ops.ones(()))), 3)
    10.0
    """

    def __init__(
        self, initial: float = 1 / 0.07, maximum: Positive = 100.0, bias: Finite | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dtype="float32", **{k: v for k, v in kwargs.items() if k != "dtype"})
        self.keep_arguments(locals())
        if not 0 < initial <= maximum:
            raise invalid_argument("initial", initial, f"a number > 0 and <= maximum={maximum}")

    def build(self, input_shape: Any = None) -> None:
        # A bound on the variable and not only in `call`, whose gradient would be 0 beyond it, for ever.
        self.log_scale = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(math.log(self.initial)),
            constraint=lambda value: ops.minimum(value, math.log(self.maximum)),
            name="log_scale",
        )
        self.learned_bias: Any = None
        if self.bias is not None:
            self.learned_bias = self.add_weight(
                shape=(), initializer=keras.initializers.Constant(self.bias), name="bias"
            )

    def parameters(self) -> list[Tensor]:
        """Returns what `scaled` takes beside the scores, with gradients: the factor and, if any, the bias."""
        factor = ops.exp(ops.minimum(self.log_scale, math.log(self.maximum)))
        return [factor] if self.learned_bias is None else [factor, 1.0 * self.learned_bias]

    @staticmethod
    def scaled(scores: Tensor, factor: Tensor, bias: Tensor | float = 0.0) -> Tensor:
        """Scales scores by what `parameters` returned; a function of tensors alone."""
        return scores * factor + bias

    def call(self, scores: Tensor) -> Tensor:
        return self.scaled(scores, *self.parameters())
