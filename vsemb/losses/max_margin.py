"""Max-margin loss over labelled pairs: low energy for true pairs, at least the margin for false pairs."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.parts import Positive

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class MaxMargin(Configured, keras.losses.Loss):
    """E for a true pair, max(0, margin - E) for a false one (Vendrov et al. 2016, equations 3, 4, 7).

    Args:
        margin: false pairs with at least this energy have no loss, > 0.
        reduction: reduction over pairs; the paper uses the sum.
        name: name of the loss.

    Call args:
        y_true: (pairs,) labels, 1 for a true pair and 0 for a false one.
        y_pred: (pairs,) energies >= 0, e.g. order violations.

    Returns:
        One value per pair before the reduction, so that Keras scales it for the replicas of a strategy.

    Raises:
        InvalidArgumentError: for a margin that is not positive.

    Example: the losses are 0.25 (true pair, energy 0.25), 0.6 (false pair, energy 0.4) and 0 (false pair, energy 13).

    >>> round(float(MaxMargin(margin=1.0)([1, 0, 0], [0.25, 0.4, 13.0])), 6)
    0.85
    """

    def __init__(self, margin: Positive = 1.0, *, reduction: str | None = None, name: str = "max_margin") -> None:
        super().__init__(name=name, reduction=reduction or "sum", dtype="float32")
        self.keep_arguments(locals())

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        energies = ops.cast(y_pred, "float32")
        short = ops.relu(self.margin - energies)
        return ops.where(ops.cast(y_true, "bool"), energies, short)
