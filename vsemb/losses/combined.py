"""Several row-wise losses at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from vsemb.errors import invalid_argument
from vsemb.losses.contrastive import InfoNCE
from vsemb.losses.in_batch import InBatchLoss, Tensor
from vsemb.losses.ranking import Ranking
from vsemb.parts import Positive, Share


@keras.saving.register_keras_serializable("vsemb")
class CombinedLoss(InBatchLoss):
    """Weighted sum of row-wise losses on the same scores.

    Which one to use: hinges on the hardest negatives sharpen rank 1, InfoNCE never runs out of
    gradient and needs no warm-up; together they do a little better than either.

    Args:
        losses: the losses; their own reductions are not used.
        weights: a number for each.
        **kwargs: arguments of `InBatchLoss`.

    Raises:
        InvalidArgumentError: for no losses, or another number of weights.

    Example: the ranking loss of this pair is 0.1 (see `PairwiseRanking`), twice that is 0.2.

    >>> from vsemb.losses import PairwiseRanking
    >>> loss = CombinedLoss([PairwiseRanking(0.2)], [2.0], reduction="sum")
    >>> round(float(loss([[1, 0], [0, 1]], [[0.9, 0.8], [0.2, 0.5]])), 6)
    0.2
    """

    default_reduction = "mean"

    def __init__(self, losses: Sequence[InBatchLoss], weights: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if not losses or len(losses) != len(weights):
            raise invalid_argument("weights", list(weights), f"a number for each of {len(losses)} losses (>= 1)")
        self.losses = list(losses)
        self.weights = list(weights)
        self.additive = all(loss.additive for loss in losses)

    def bind_step(self, step: Any) -> None:
        super().bind_step(step)
        for loss in self.losses:
            loss.bind_step(step)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        parts = [w * loss.call(labels, scores, mask) for w, loss in zip(self.weights, self.losses, strict=True)]
        return sum(parts[1:], parts[0])

    def collapsed_query(self, candidates: int) -> float:
        return sum(w * loss.collapsed_query(candidates) for w, loss in zip(self.weights, self.losses, strict=True))


@dataclass(frozen=True)
class RankingInfoNCE(Ranking, kind="ranking-infonce"):
    """Pairwise ranking with InfoNCE at a fixed temperature beside it.

    Attributes:
        infonce_weight: weight of InfoNCE beside the ranking loss.
        temperature: scores are divided by it for InfoNCE.
        label_smoothing: share of InfoNCE's target spread over a query's negatives.
    """

    infonce_weight: Positive = 1.0
    temperature: Positive = 0.07
    label_smoothing: Share = 0.0

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        losses = [super().build(steps_per_epoch), InfoNCE(self.temperature, self.label_smoothing)]
        return CombinedLoss(losses, [1.0, self.infonce_weight], reduction=self.reduction)
