"""Optimizers and learning-rate schedules of recipes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import keras

from vsemb.errors import invalid_argument
from vsemb.parts import NonNegative, Part, Positive, Share
from vsemb.training import adam
from vsemb.training import momentum as rising


@dataclass(frozen=True)
class Schedule(Part, family="schedule"):
    """The learning rate over the steps of a training; base of the family `schedule`."""

    def build(
        self, rate: float, steps_per_epoch: int, epochs: int
    ) -> float | keras.optimizers.schedules.LearningRateSchedule:
        """Returns what a Keras optimizer takes as its learning rate.

        Args:
            rate: the learning rate at its highest.
            steps_per_epoch: for fields that count epochs.
            epochs: of the whole training.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule, kind="constant"):
    """The same learning rate at every step."""

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> float:
        del steps_per_epoch, epochs
        return rate


@dataclass(frozen=True)
class Exponential(Schedule, kind="exponential"):
    """The learning rate shrinks by a factor, smoothly.

    Attributes:
        factor: the learning rate is multiplied by it once every `every`.
        every: number of epochs or steps, see `unit`.
        unit: `epochs` or `steps`.
    """

    factor: Positive = 0.1
    every: Positive = 15.0
    unit: Literal["epochs", "steps"] = "epochs"

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> keras.optimizers.schedules.ExponentialDecay:
        del epochs
        return self._decay(rate, steps_per_epoch, staircase=False)

    def _decay(
        self, rate: float, steps_per_epoch: int, *, staircase: bool
    ) -> keras.optimizers.schedules.ExponentialDecay:
        steps = self.every * (steps_per_epoch if self.unit == "epochs" else 1)
        return keras.optimizers.schedules.ExponentialDecay(rate, max(round(steps), 1), self.factor, staircase=staircase)


@dataclass(frozen=True)
class Step(Exponential, kind="step"):
    """The learning rate shrinks by a factor, at once."""

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> keras.optimizers.schedules.ExponentialDecay:
        del epochs
        return self._decay(rate, steps_per_epoch, staircase=True)


@dataclass(frozen=True)
class Cosine(Schedule, kind="cosine"):
    """The learning rate follows half a cosine, to zero at the last step.

    Attributes:
        warmup_epochs: epochs of a linear rise from zero before it.
    """

    warmup_epochs: NonNegative = 0.0

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> keras.optimizers.schedules.CosineDecay:
        warmup = round(self.warmup_epochs * steps_per_epoch)
        decay = max(epochs * steps_per_epoch - warmup, 1)
        if warmup == 0:
            return keras.optimizers.schedules.CosineDecay(rate, decay)
        return keras.optimizers.schedules.CosineDecay(0.0, decay, warmup_target=rate, warmup_steps=warmup)


@dataclass(frozen=True)
class OptimizerPart(Part, family="optimizer"):
    """An optimizer and its schedule; base of the family `optimizer`.

    Attributes:
        learning_rate: at its highest.
        schedule: the learning rate over the steps.
        global_clipnorm: gradients are scaled to this global norm at most; null for none.
        clipvalue: each entry of a gradient is cut to +- this; null for not.
        ema_momentum: decay of an exponential moving average of the weights, which is then measured and kept;
            null for none.
    """

    learning_rate: Positive = 2e-4
    schedule: Schedule = field(default_factory=Constant)
    global_clipnorm: Positive | None = None
    clipvalue: Positive | None = None
    ema_momentum: Share | None = None

    def check(self) -> None:
        if self.global_clipnorm is not None and self.clipvalue is not None:
            raise invalid_argument("optimizer.clipvalue", self.clipvalue, "null with optimizer.global_clipnorm")

    def build(self, steps_per_epoch: int, epochs: int) -> keras.optimizers.Optimizer:
        """Builds the Keras optimizer.

        Args:
            steps_per_epoch: for schedules that count epochs.
            epochs: of the whole training.
        """
        raise NotImplementedError

    def options(self, steps_per_epoch: int, epochs: int) -> dict[str, Any]:
        """Returns the arguments that all Keras optimizers take."""
        return {
            "learning_rate": self.schedule.build(self.learning_rate, steps_per_epoch, epochs),
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.ema_momentum is not None,
            "ema_momentum": 0.99 if self.ema_momentum is None else self.ema_momentum,
        }


@dataclass(frozen=True)
class Adam(OptimizerPart, kind="adam"):
    """Adam.

    Attributes:
        sparse_embedding_updates: whether vectors of words that a batch does not have stay as they are, so that the
            time of a step does not grow with the vocabulary.
    """

    sparse_embedding_updates: bool = False

    def build(self, steps_per_epoch: int, epochs: int) -> adam.Adam:
        return adam.Adam(lazy=self.sparse_embedding_updates, **self.options(steps_per_epoch, epochs))


@dataclass(frozen=True)
class AdamW(Adam, kind="adamw"):
    """Adam with decoupled weight decay.

    Attributes:
        weight_decay: share of a weight that a step takes off, per unit of learning rate.
    """

    weight_decay: NonNegative = 0.0

    def options(self, steps_per_epoch: int, epochs: int) -> dict[str, Any]:
        return {**super().options(steps_per_epoch, epochs), "weight_decay": self.weight_decay}


@dataclass(frozen=True)
class RMSprop(OptimizerPart, kind="rmsprop"):
    """RMSprop."""

    def build(self, steps_per_epoch: int, epochs: int) -> keras.optimizers.RMSprop:
        return keras.optimizers.RMSprop(**self.options(steps_per_epoch, epochs))


@dataclass(frozen=True)
class SGD(OptimizerPart, kind="sgd"):
    """Stochastic gradient descent.

    Attributes:
        momentum: share of the last step that is taken again; with a rising momentum its final value.
    """

    momentum: Share = 0.0

    def build(self, steps_per_epoch: int, epochs: int) -> keras.optimizers.SGD:
        return keras.optimizers.SGD(momentum=self.momentum, **self.options(steps_per_epoch, epochs))


@dataclass(frozen=True)
class RisingMomentumSGD(SGD, kind="rising-momentum-sgd"):
    """Stochastic gradient descent with a momentum that rises (imgcap).

    Attributes:
        momentum_start: what the momentum rises from.
        momentum_steps: steps after which the rise is 63 % done.
    """

    momentum: Share = 0.95
    momentum_start: Share = 0.5
    momentum_steps: Positive = 2500.0

    def check(self) -> None:
        super().check()
        if self.momentum_start > self.momentum:
            allowed = f"a number in [0, {self.momentum}], up to optimizer.momentum"
            raise invalid_argument("optimizer.momentum_start", self.momentum_start, allowed)

    def build(self, steps_per_epoch: int, epochs: int) -> rising.RisingMomentumSGD:
        return rising.RisingMomentumSGD(
            momentum=self.momentum,
            momentum_start=self.momentum_start,
            momentum_steps=self.momentum_steps,
            **self.options(steps_per_epoch, epochs),
        )
