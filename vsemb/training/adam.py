"""Adam in one kernel a variable, and updates of word vectors that touch the rows of a batch alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from vsemb.errors import invalid_argument

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` (arXiv:1412.6980), faster, with an option for large vocabularies.

    A dense update is TensorFlow's own kernel, which passes over memory once where Keras' operations pass
    about ten times. The gradient of a table of vectors comes as a list of rows, in which a word may occur
    many times: its rows are added up first, where Keras squares each by itself.

    Args:
        learning_rate: a number, or a schedule of Keras.
        lazy: whether vectors and moments of words that a batch does not have stay as they are. Then the
            time of a step does not depend on the size of the vocabulary, but it is another algorithm: in
            Adam a vector goes on moving by its momentum, and its moments shrink, while its word is absent.
        **kwargs: arguments of `keras.optimizers.Adam`. With `amsgrad`, and on other backends, it is Keras'.

    Raises:
        InvalidArgumentError: for `lazy` on another backend.

    Example:

    >>> table = keras.Variable([[1.0], [1.0]])
    >>> rows = tf.IndexedSlices(tf.constant([[2.0], [3.0]]), tf.constant([1, 1]), (2, 1))
    >>> Adam(0.1, lazy=True).apply([rows], [table])
    >>> print(table.numpy()[:, 0].round(3))
    [1.  0.9]
    """

    def __init__(self, learning_rate: Any = 0.001, *, lazy: bool = False, **kwargs: Any) -> None:
        if lazy and keras.backend.backend() != "tensorflow":
            raise invalid_argument("lazy", lazy, "False on other backends than TensorFlow, where gradients are dense")
        super().__init__(learning_rate, **kwargs)
        self.lazy = lazy

    def update_step(self, gradient: Tensor, variable: Tensor, learning_rate: Tensor) -> None:
        """Updates one variable; called by Keras."""
        if self.amsgrad or keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        target = _resource(variable)
        index = self._get_variable_index(variable)
        first, second = _resource(self._momentums[index]), _resource(self._velocities[index])
        rate = tf.cast(learning_rate, target.dtype)
        step = tf.cast(self.iterations + 1, target.dtype)
        powers = [tf.pow(tf.cast(beta, target.dtype), step) for beta in (self.beta_1, self.beta_2)]
        if isinstance(gradient, tf.IndexedSlices):
            values = tf.cast(gradient.values, target.dtype)
            if self.lazy:
                rows, sums = _sums(values, gradient.indices)
                corrected = rate * tf.sqrt(1 - powers[1]) / (1 - powers[0])
                move_rows(target, (first, second), rows, sums, corrected, *self._constants())
                return
            gradient = tf.math.unsorted_segment_sum(values, gradient.indices, tf.shape(target)[0])
        gradient = tf.cast(gradient, target.dtype)
        move(target, (first, second), gradient, rate, *self._constants(), powers=powers)

    def _constants(self) -> tuple[float, float, float]:
        return self.beta_1, self.beta_2, self.epsilon

    def _clip_gradients(self, grads: list[Tensor]) -> list[Tensor]:
        # Keras makes a whole table of a list of rows to clip it. Once rows that repeat are added up, the norm
        # and the greatest entry of the list are those of the table.
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        if keras.backend.backend() != "tensorflow":
            return super()._clip_gradients(grads)
        grads = [_added_up(grad) for grad in grads]
        is_rows = [isinstance(grad, tf.IndexedSlices) for grad in grads]
        values = [grad.values if rows else grad for grad, rows in zip(grads, is_rows, strict=True)]
        return [
            tf.IndexedSlices(value, grad.indices, grad.dense_shape) if rows else value
            for value, grad, rows in zip(super()._clip_gradients(values), grads, is_rows, strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "lazy": self.lazy}


def move(
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
    """Takes a step of Adam with a variable of TensorFlow, in one kernel.

    Args:
        variable: moved in place.
        moments: first and second, variables of the same shape, likewise.
        gradient: of the same shape.
        rate: the learning rate.
        beta_1, beta_2, epsilon: Adam's.
        powers: of the betas with the number of the step, by which the rate is corrected; 0 where it has been.
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


def move_rows(
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
    """Takes a step of Adam with some rows of a variable of TensorFlow; the others and their moments stay.

    Args:
        variable: moved in place.
        moments: first and second, variables of the same shape, likewise.
        rows: (n,) int, each once.
        gradient: (n, ...) of these rows.
        rate: the learning rate, corrected for the number of the step.
        beta_1, beta_2, epsilon: Adam's.
        vectors: (n, ...) the rows, where they have been gathered.
    """
    mean, square = (tf.gather(moment, rows) for moment in moments)
    vectors = tf.gather(variable, rows) if vectors is None else vectors
    mean += (gradient - mean) * (1 - beta_1)
    square += (tf.square(gradient) - square) * (1 - beta_2)
    vectors -= rate * mean / (tf.sqrt(square) + epsilon)
    # Overwriting rows is a copy of memory; adding to them takes TensorFlow six times as long.
    for target, value in zip((*moments, variable), (mean, square, vectors), strict=True):
        target.scatter_update(tf.IndexedSlices(value, rows))


def _added_up(gradient: Tensor) -> Tensor:
    """Returns a gradient, if it is a list of rows, with each row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, values = _sums(gradient.values, gradient.indices)
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _sums(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids, each once, and the sums of their rows."""
    rows, place = tf.unique(ids)
    return rows, tf.math.unsorted_segment_sum(values, place, tf.size(rows))


def _resource(variable: Any) -> Any:
    """Returns TensorFlow's variable of Keras'."""
    return variable.value if isinstance(variable, keras.Variable) else variable
