"""A loss: log(1 + sum over negatives of exp(sharpness (negative - own)))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.losses.in_batch import InBatchLoss, LossPart, is_negative, positive_scores
from vsemb.parts import Positive


@keras.saving.register_keras_serializable("outsider")
class SoftMarginLoss(InBatchLoss):
    """A smooth margin between a query's own pair and its negatives.

    Example: one negative that scores as the own pair gives log 2.

    >>> round(float(SoftMarginLoss()([[1, 0]], [[0.5, 0.5]])), 4)
    0.6931
    """

    def __init__(self, sharpness: float = 1.0, *, reduction: str | None = None, name: str = "soft_margin") -> None:
        super().__init__(reduction=reduction, name=name)
        self.sharpness = sharpness

    def call(self, labels: Any, scores: Any, mask: Any = None) -> Any:
        ahead = self.sharpness * (scores - positive_scores(labels, scores))
        ahead = ops.where(is_negative(labels, mask), ahead, -1e9)
        return ops.log1p(ops.sum(ops.exp(ahead), axis=1))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sharpness": self.sharpness}


@dataclass(frozen=True)
class SoftMargin(LossPart, kind="soft-margin"):
    """A smooth margin.

    Attributes:
        sharpness: differences of scores are multiplied by it.
    """

    sharpness: Positive = 1.0

    def build(self, steps_per_epoch: int) -> SoftMarginLoss:
        del steps_per_epoch
        return SoftMarginLoss(self.sharpness, reduction=self.reduction)
