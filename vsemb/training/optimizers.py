"""Optimizers and learning-rate schedules of recipes, and an Adam for sparse gradients.

`FusedAdam` runs one kernel per variable, and can update only the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import keras

from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import NonNegative, Part, Positive, Share

Tensor = Any


@dataclass(frozen=True)
class Schedule(Part, family="schedule"):
    """The learning rate over the steps of a training; base of the family `schedule`."""

    def build(
        self, rate: float, steps_per_epoch: int, epochs: int
    ) -> float | keras.optimizers.schedules.LearningRateSchedule:
        """Return the learning rate of a Keras optimizer: a number or a schedule.

        Args:
            rate: the highest learning rate.
            steps_per_epoch: number of steps per epoch, for fields that count epochs.
            epochs: number of epochs of the training.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule, kind="constant"):
    """The same learning rate at every step."""

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> float:
        return rate


@dataclass(frozen=True)
class Exponential(Schedule, kind="exponential"):
    """Exponential decay of the learning rate.

    Attributes:
        factor: the learning rate decays by this factor in each period of `every` epochs or steps.
        every: number of epochs or steps, see `unit`.
        unit: `epochs` or `steps`.
    """

    staircase: ClassVar[bool] = False

    factor: Positive = 0.1
    every: Positive = 15.0
    unit: Literal["epochs", "steps"] = "epochs"

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> keras.optimizers.schedules.ExponentialDecay:
        unit = steps_per_epoch if self.unit == "epochs" else 1
        steps = max(round(self.every * unit), 1)
        return keras.optimizers.schedules.ExponentialDecay(rate, steps, self.factor, staircase=self.staircase)


@dataclass(frozen=True)
class Step(Exponential, kind="step"):
    """Step decay: the learning rate is multiplied by a factor after each period."""

    staircase: ClassVar[bool] = True


@dataclass(frozen=True)
class Cosine(Schedule, kind="cosine"):
    """Cosine decay of the learning rate, to zero at the last step.

    Attributes:
        warmup_epochs: epochs of a linear increase from zero before the decay.
    """

    warmup_epochs: NonNegative = 0.0

    def build(self, rate: float, steps_per_epoch: int, epochs: int) -> keras.optimizers.schedules.CosineDecay:
        warmup = round(self.warmup_epochs * steps_per_epoch)
        decay = max(epochs * steps_per_epoch - warmup, 1)
        if warmup == 0:
            return keras.optimizers.schedules.CosineDecay(rate, decay)
        return keras.optimizers.schedules.CosineDecay(0.0, decay, warmup_target=rate, warmup_steps=warmup)


@keras.saving.register_keras_serializable("vsemb")
class FusedAdam(keras.optimizers.Adam):
    """A faster `keras.optimizers.Adam` (arXiv:1412.6980), with an option for large vocabularies.

    A dense update uses one kernel of TensorFlow, which reads memory once; the operations of Keras read it about ten
    times. The gradient of an embedding is a list of rows, in which a word can occur several times. These rows are added
    before they are squared; Keras squares each row separately.

    Args:
        learning_rate: a number, or a schedule of Keras.
        sparse_embedding_updates: whether to update only the vectors and moments of words in the batch. The time of a
            step is then independent of the vocabulary size. The algorithm differs from Adam, which also updates vectors
            of absent words by their momentum, and decays their moments.
        **kwargs: arguments of `keras.optimizers.Adam`. With `amsgrad`, and on other backends, Keras' code is used.

    Raises:
        InvalidArgumentError: for `sparse_embedding_updates` on another backend.

    Example:

    >>> table = keras.Variable([[1.0], [1.0]])
    >>> rows = tf.IndexedSlices(tf.constant([[2.0], [3.0]]), tf.constant([1, 1]), (2, 1))
    >>> FusedAdam(0.1, sparse_embedding_updates=True).apply([rows], [table])
    >>> print(table.numpy()[:, 0].round(3))
    [1.  0.9]
    """

    def __init__(self, learning_rate: Any = 0.001, *, sparse_embedding_updates: bool = False, **kwargs: Any) -> None:
        if sparse_embedding_updates and keras.backend.backend() != "tensorflow":
            allowed = "False on other backends than TensorFlow, where gradients are dense"
            raise invalid_argument("sparse_embedding_updates", True, allowed)
        super().__init__(learning_rate, **kwargs)
        self.sparse_embedding_updates = sparse_embedding_updates

    def build(self, variables: list[keras.Variable]) -> None:
        """Make the moments of the variables; called by Keras."""
        super().build(variables)
        self._shares = [getattr(variable, "learning_rate_share", 1.0) for variable in variables]

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Update one variable; called by Keras."""
        share = self._shares[self._get_variable_index(variable)]
        learning_rate = learning_rate if share == 1.0 else learning_rate * share
        if self.amsgrad or keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        target = _resource(variable)
        index = self._get_variable_index(variable)
        first, second = _resource(self._momentums[index]), _resource(self._velocities[index])
        rate = tf.cast(learning_rate, target.dtype)
        step = tf.cast(self.iterations + 1, target.dtype)
        powers = [tf.pow(tf.cast(beta, target.dtype), step) for beta in (self.beta_1, self.beta_2)]
        constants = self.beta_1, self.beta_2, self.epsilon
        if isinstance(gradient, tf.IndexedSlices):
            values = tf.cast(gradient.values, target.dtype)
            if self.sparse_embedding_updates:
                rows = _added_up(tf.IndexedSlices(values, gradient.indices))
                corrected = rate * tf.sqrt(1 - powers[1]) / (1 - powers[0])
                adam_step_of_rows(target, (first, second), rows.indices, rows.values, corrected, *constants)
                return
            gradient = tf.math.unsorted_segment_sum(values, gradient.indices, tf.shape(target)[0])
        gradient = tf.cast(gradient, target.dtype)
        adam_step(target, (first, second), gradient, rate, *constants, powers=powers)

    def _clip_gradients(self, grads: list[Tensor]) -> list[Tensor]:
        # To clip a list of rows, Keras would convert it to a whole table. After repeated rows are added, the list has
        # the norm and the largest entry of the table.
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        if keras.backend.backend() != "tensorflow":
            return super()._clip_gradients(grads)
        grads = [_added_up(grad) if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        clipped = super()._clip_gradients([getattr(grad, "values", grad) for grad in grads])
        for number, grad in enumerate(grads):
            if isinstance(grad, tf.IndexedSlices):
                clipped[number] = tf.IndexedSlices(clipped[number], grad.indices, grad.dense_shape)
        return clipped

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "sparse_embedding_updates": self.sparse_embedding_updates}


def adam_step(
    variable: Any,
    moments: tuple[Any, Any],
    gradient: Tensor,
    rate: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    *,
    powers: Sequence[Tensor] = (0.0, 0.0),
) -> None:
    """Update a TensorFlow variable by a step of Adam, in one kernel.

    Args:
        variable: the variable, updated in place.
        moments: first and second moment, variables of the same shape, updated in place.
        gradient: gradient of the same shape.
        rate: the learning rate.
        beta_1, beta_2, epsilon: hyperparameters of Adam.
        powers: `beta_1 ** step` and `beta_2 ** step`, for bias correction; 0 if `rate` is already corrected.
    """
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=moments[0].handle,
        v=moments[1].handle,
        beta1_power=tf.cast(powers[0], variable.dtype),
        beta2_power=tf.cast(powers[1], variable.dtype),
        lr=rate,
        beta1=tf.cast(beta_1, variable.dtype),
        beta2=tf.cast(beta_2, variable.dtype),
        epsilon=tf.cast(epsilon, variable.dtype),
        grad=gradient,
    )


def adam_step_of_rows(
    variable: Any,
    moments: tuple[Any, Any],
    rows: Tensor,
    gradient: Tensor,
    rate: Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    *,
    vectors: Tensor | None = None,
) -> None:
    """Update some rows of a TensorFlow variable by a step of Adam; other rows and their moments do not change.

    Args:
        variable: the variable, updated in place.
        moments: first and second moment, variables of the same shape, updated in place.
        rows: (n,) int, distinct.
        gradient: (n, ...) gradients of these rows.
        rate: the learning rate, with bias correction.
        beta_1, beta_2, epsilon: hyperparameters of Adam.
        vectors: (n, ...) the rows, if they are already gathered; None to gather them.
    """
    mean, square = (tf.gather(moment, rows) for moment in moments)
    vectors = tf.gather(variable, rows) if vectors is None else vectors
    mean += (gradient - mean) * (1 - beta_1)
    square += (tf.square(gradient) - square) * (1 - beta_2)
    vectors -= rate * mean / (tf.sqrt(square) + epsilon)
    # Overwrite rows instead of adding to them, which takes TensorFlow six times as long.
    for target, value in zip((*moments, variable), (mean, square, vectors), strict=True):
        target.scatter_update(tf.IndexedSlices(value, rows))


def _added_up(rows: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add the occurrences of each row, and return the list of distinct rows."""
    indices, places = tf.unique(rows.indices)
    values = tf.math.unsorted_segment_sum(rows.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, rows.dense_shape)


def _resource(variable: Any) -> Any:
    """Return the TensorFlow variable of a Keras variable."""
    return variable.value if isinstance(variable, keras.Variable) else variable


@dataclass(frozen=True)
class OptimizerPart(Part, family="optimizer"):
    """An optimizer and its schedule; base of the family `optimizer`.

    Attributes:
        learning_rate: the highest learning rate.
        schedule: the learning rate schedule.
        global_clipnorm: maximum global norm of gradients; null for no clipping.
        clipvalue: maximum absolute value of each gradient entry; null for no clipping.
        ema_momentum: decay of an exponential moving average of the weights, which is then evaluated and saved; null
            for no average.

    Class attributes:
        optimizer: the Keras optimizer, whose arguments have the names of the fields.
    """

    optimizer: ClassVar[Callable[..., keras.optimizers.Optimizer]]

    learning_rate: Positive = 2e-4
    schedule: Schedule = field(default_factory=Constant)
    global_clipnorm: Positive | None = None
    clipvalue: Positive | None = None
    ema_momentum: Share | None = None

    def check(self) -> None:
        if self.global_clipnorm is not None and self.clipvalue is not None:
            raise invalid_argument("optimizer.clipvalue", self.clipvalue, "null with optimizer.global_clipnorm")

    def build(self, steps_per_epoch: int, epochs: int) -> keras.optimizers.Optimizer:
        """Build the Keras optimizer.

        Args:
            steps_per_epoch: number of steps per epoch, for schedules that count epochs.
            epochs: number of epochs of the training.
        """
        options = self.arguments("learning_rate", "ema_momentum")
        if self.ema_momentum is not None:
            options |= {"use_ema": True, "ema_momentum": self.ema_momentum}
        return self.optimizer(self.schedule.build(self.learning_rate, steps_per_epoch, epochs), **options)


@dataclass(frozen=True)
class Adam(OptimizerPart, kind="adam"):
    """Adam.

    Attributes:
        sparse_embedding_updates: whether to update only the vectors of words in the batch; the time of a step is then
            independent of the vocabulary size.
    """

    optimizer: ClassVar[Callable[..., keras.optimizers.Optimizer]] = FusedAdam

    sparse_embedding_updates: bool = False


@dataclass(frozen=True)
class AdamW(Adam, kind="adamw"):
    """Adam with decoupled weight decay.

    Attributes:
        weight_decay: share of a weight that a step subtracts, per unit of learning rate.
    """

    weight_decay: NonNegative = 0.0


@dataclass(frozen=True)
class RMSprop(OptimizerPart, kind="rmsprop"):
    """RMSprop."""

    optimizer: ClassVar[Callable[..., keras.optimizers.Optimizer]] = keras.optimizers.RMSprop


@dataclass(frozen=True)
class SGD(OptimizerPart, kind="sgd"):
    """Stochastic gradient descent.

    Attributes:
        momentum: share of the previous step that is added to a step.
    """

    optimizer: ClassVar[Callable[..., keras.optimizers.Optimizer]] = keras.optimizers.SGD

    momentum: Share = 0.0
