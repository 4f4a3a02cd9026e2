"""Training that leaves out the batches whose loss or gradients are not finite."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from vsemb.ops.tensorflow import tf

Tensor = Any


def skip_nonfinite(model: keras.Model) -> None:
    """Let a compiled model skip batches whose loss or gradients are not finite.

    A skipped batch changes neither weights nor moments of the optimizer. Under TensorFlow it counts as a step of the
    schedule, and AdamW decays the weights. The metric `skipped` counts the batches of an epoch whose loss is not
    finite, and the mean of `loss` leaves them out. If one replica must skip, all skip.

    Args:
        model: the model, in the scope of its strategy.

    Example:

        model.compile(optimizer="adam", loss="mse")
        skip_nonfinite(model)
    """
    compute_loss = model.compute_loss

    def loss_with_flag(*args: Any, **options: Any) -> Tensor:
        loss = compute_loss(*args, **options)
        # Adds 0, or NaN to the gradient of one weight: a hinge has no gradient where the loss is NaN.
        weight = min(model.trainable_variables, key=lambda variable: len(variable.shape))
        return loss + 0.0 * ops.stop_gradient(loss) * ops.cast(ops.sum(weight), loss.dtype)

    model.compute_loss = loss_with_flag
    # Keras tracks no new metric in a built model, and needs not: it asks this attribute.
    object.__setattr__(model, "_loss_tracker", _FiniteMean(name="loss"))
    optimizer = model.optimizer
    if keras.backend.backend() != "tensorflow":
        optimizer.stateless_apply = functools.partial(_finite_step, optimizer.stateless_apply)
        return
    apply, update = optimizer.apply, optimizer.update_step

    def update_finite(gradient: Any, *others: Any) -> None:
        finite = tf.reduce_all(tf.math.is_finite(getattr(gradient, "values", gradient)))
        tf.cond(finite, lambda: update(gradient, *others), lambda: None)

    def apply_finite(gradients: Any, *others: Any) -> None:
        # All gradients become NaN if the norm is not finite, and on all replicas after their sum. Otherwise they are
        # multiplied by exactly 1.
        clipped, _ = tf.clip_by_global_norm(list(gradients), 2.0**100)
        apply(clipped, *others)

    optimizer.apply = apply_finite
    optimizer.update_step = update_finite


class _FiniteMean(keras.metrics.Mean):
    """The mean of the finite losses, and how many are not."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.skipped = self.add_variable((), "zeros", name="skipped")

    def update_state(self, values: Tensor, sample_weight: Any = 1) -> None:
        finite = ops.isfinite(values)
        self.skipped.assign_add(ops.where(finite, 0.0, 1.0))
        weights = ops.where(finite, ops.cast(sample_weight, self.dtype), 0.0)
        super().update_state(ops.where(finite, values, 0.0), weights)

    # That of `Mean` leaves `skipped` out.
    reset_state = keras.metrics.Metric.reset_state

    def result(self) -> dict[str, Tensor]:
        return {"loss": super().result(), "skipped": ops.convert_to_tensor(self.skipped)}


def _finite_step(apply: Any, state: Any, gradients: Any, variables: Any) -> tuple[list[Tensor], ...]:
    finite = ops.all(ops.stack([ops.all(ops.isfinite(gradient)) for gradient in gradients]))

    def kept(new: Any, old: Any) -> list[Tensor]:
        return [ops.where(finite, *pair) for pair in zip(new, old, strict=True)]

    new_variables, new_state = apply(state, gradients, variables)
    return kept(new_variables, variables), kept(new_state, state)
