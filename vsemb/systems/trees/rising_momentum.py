"""Stochastic gradient descent with the rising momentum of the imgcap report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.errors import invalid_argument
from vsemb.parts import Positive, Share, require
from vsemb.training.optimizers import SGD

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class RisingMomentumSGD(keras.optimizers.SGD):
    """SGD with a momentum that starts at `momentum_start` and approaches `momentum`.

    The imgcap report, section 4: "momentum constant µ = 0.5 asymptotically grew to µ = 0.95". The report gives no
    formula. Here the distance to `momentum` shrinks by the factor e every `momentum_steps` steps. At step t, counted
    from 0:

        µ(t) = momentum - (momentum - momentum_start) exp(-t / momentum_steps)
        v ← µ(t) v - rate(t) gradient
        weight ← weight + v

    Each step equals a step of `keras.optimizers.SGD` with momentum µ(t). The step is the optimizer's own counter, so a
    resumed training continues with the same momentum.

    Args:
        learning_rate: a number or a Keras schedule; default 0.01.
        momentum: final value, in [0, 1); default 0.95.
        momentum_start: initial value, in [0, momentum]; default 0.5.
        momentum_steps: steps after which 63 % of the rise is done, > 0; default 2500.
        **kwargs: arguments of `keras.optimizers.SGD`, such as `nesterov`.

    Raises:
        InvalidArgumentError: for a momentum outside its range.

    Example:

    >>> optimizer = RisingMomentumSGD(0.1, momentum=0.95, momentum_start=0.5, momentum_steps=2500)
    >>> [round(float(optimizer.momentum_at(step)), 3) for step in (0, 2500, 25_000)]
    [0.5, 0.784, 0.95]
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.95,
        *,
        momentum_start: float = 0.5,
        momentum_steps: float = 2500.0,
        **kwargs: Any,
    ) -> None:
        require("momentum", momentum, Share)
        require("momentum_steps", momentum_steps, Positive)
        if not 0 <= momentum_start <= momentum:
            raise invalid_argument("momentum_start", momentum_start, f"a number in [0, momentum={momentum}]")
        super().__init__(learning_rate, float(momentum), **kwargs)
        self.momentum_start = momentum_start
        self.momentum_steps = momentum_steps

    def momentum_at(self, step: Tensor) -> Tensor:
        """Return the momentum of a step, a float32 scalar.

        Args:
            step: index of the step, from 0.
        """
        left = ops.exp(-ops.cast(step, "float32") / self.momentum_steps)
        return self.momentum - (self.momentum - self.momentum_start) * left

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Update one variable. Keras calls this method."""
        if self.momentum == 0:
            super().update_step(gradient, variable, learning_rate)
            return
        # As in `keras.optimizers.SGD`, whose momentum is a constant of the compiled step.
        velocity = self.momentums[self._get_variable_index(variable)]
        momentum = ops.cast(self.momentum_at(self.iterations), variable.dtype)
        slope = ops.multiply(ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype))
        self.assign(velocity, ops.subtract(ops.multiply(velocity, momentum), slope))
        if self.nesterov:
            self.assign_add(variable, ops.subtract(ops.multiply(velocity, momentum), slope))
        else:
            self.assign_add(variable, velocity)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        rise = {"momentum_start": self.momentum_start, "momentum_steps": self.momentum_steps}
        return {**super().get_config(), **rise}


@dataclass(frozen=True)
class RisingMomentum(SGD, kind="rising-momentum-sgd"):
    """Stochastic gradient descent with rising momentum (imgcap).

    Attributes:
        momentum_start: initial momentum.
        momentum_steps: steps after which the rise is 63 % done.
    """

    optimizer: ClassVar[Callable[..., keras.optimizers.Optimizer]] = RisingMomentumSGD

    momentum: Share = 0.95
    momentum_start: Share = 0.5
    momentum_steps: Positive = 2500.0

    def check(self) -> None:
        super().check()
        if self.momentum_start > self.momentum:
            allowed = f"a number in [0, {self.momentum}], up to optimizer.momentum"
            raise invalid_argument("optimizer.momentum_start", self.momentum_start, allowed)
