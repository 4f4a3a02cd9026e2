"""Pairwise ranking loss, alone or with InfoNCE: a query's own pair must score higher than negatives by a margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.losses.contrastive import InfoNCE
from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, LossPart, Tensor, is_negative, positive_scores
from vsemb.parts import NonNegative, Part, Positive, Share, at_least


@keras.saving.register_keras_serializable("vsemb")
class PairwiseRanking(InBatchLoss):
    """Hinge of margin - s(own) + s(negative), over all negatives or the hardest one.

    When to use it: `"all"` (Kiros et al. 2014, equation 6) is stable, and best with noisy captions. `"hardest"` (VSE++,
    equation 6 of arXiv:1707.05612) gives better recall. At the start of training it can collapse: all embeddings become
    equal, and the loss stays at `collapsed_value`. A warm-up avoids this. In the second half of `warmup_steps`, the
    weight of the hardest negative increases linearly from 0 to 1, and the weight of the sum decreases from 1 to 0.

    Args:
        margin: the margin, in units of the score, >= 0; 0.2 in Kiros et al. 2014.
        negatives: `"all"` or `"hardest"`.
        warmup_steps: optimizer steps from `"all"` to `"hardest"`; 0 for no warm-up.
        **kwargs: arguments of `InBatchLoss`; the papers use the sum over queries.

    Raises:
        InvalidArgumentError: for a negative margin or warm-up, or an unknown `negatives`.

    Example: scores [[0.9, 0.8], [0.2, 0.5]], margin 0.2. Row 0: 0.2 - 0.9 + 0.8 = 0.1;
    row 1: 0.2 - 0.5 + 0.2 < 0, so 0.

    >>> loss = PairwiseRanking(margin=0.2)
    >>> round(float(loss([[1, 0], [0, 1]], [[0.9, 0.8], [0.2, 0.5]])), 6)
    0.1
    """

    def __init__(
        self,
        margin: NonNegative = 0.2,
        negatives: Literal["all", "hardest"] = "all",
        warmup_steps: Annotated[int, at_least(0)] = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        hinge = ops.relu(self.margin - positive_scores(labels, scores) + scores)
        hinge = ops.where(is_negative(labels, mask), hinge, 0.0)  # (queries, candidates)
        return self.over_negatives(lambda: ops.sum(hinge, axis=1), lambda: ops.max(hinge, axis=1, initial=0.0))

    def over_negatives(self, over_all: Callable[[], Tensor], hardest: Callable[[], Tensor]) -> Tensor:
        """Return each query's loss, (queries,): over all negatives, over the hardest, or, in a warm-up, a mean of both.

        Args:
            over_all: the loss over all negatives.
            hardest: the loss over the hardest one.
        """
        if self.negatives == "all":
            return over_all()
        if self.warmup_steps == 0 or self.step is None:
            return hardest()
        weight = ops.clip(2.0 * ops.cast(self.step, "float32") / self.warmup_steps - 1.0, 0.0, 1.0)
        return weight * hardest() + (1.0 - weight) * over_all()

    def collapsed_query(self, candidates: int) -> float:
        """Return the loss of one query if all embeddings are equal.

        Every hinge is then the margin (Wu et al. 2017, arXiv:1706.07567, on why it is a saddle).

        Args:
            candidates: number of candidates per query.
        """
        return self.margin * (1 if self.negatives == "hardest" else candidates - 1)


@dataclass(frozen=True)
class Negatives(Part, family="negatives"):
    """Negatives of a query; base of the family `negatives`."""

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Return the argument `warmup_steps` of `PairwiseRanking`."""
        return 0


@dataclass(frozen=True)
class All(Negatives, kind="all"):
    """The sum over all negatives of the batch."""


@dataclass(frozen=True)
class Hardest(Negatives, kind="hardest"):
    """The hardest negative of the batch (VSE++).

    Attributes:
        warmup_epochs: epochs of the change from the sum over all negatives to the hardest one.
    """

    warmup_epochs: NonNegative = 0.0

    def warmup_steps(self, steps_per_epoch: int) -> int:
        return round(self.warmup_epochs * steps_per_epoch)


@dataclass(frozen=True)
class Ranking(LossPart, kind="ranking"):
    """Pairwise ranking loss (Kiros et al. 2014; VSE++).

    Attributes:
        margin: required difference between the scores of the own pair and of negatives.
        negatives: the negatives of a query.

    Class attributes:
        loss: the Keras loss.
    """

    loss: ClassVar[Callable[..., PairwiseRanking]] = PairwiseRanking

    margin: NonNegative = 0.2
    negatives: Negatives = field(default_factory=All)

    def build(self, steps_per_epoch: int) -> InBatchLoss:
        warmup = self.negatives.warmup_steps(steps_per_epoch)
        return self.loss(self.margin, self.negatives.kind, warmup_steps=warmup, reduction=self.reduction)


@dataclass(frozen=True)
class RankingInfoNCE(Ranking, kind="ranking-infonce"):
    """Sum of the pairwise ranking loss and InfoNCE at a fixed temperature.

    Attributes:
        infonce_weight: weight of InfoNCE; the ranking loss has weight 1.
        temperature: divisor of the scores in InfoNCE.
        label_smoothing: share of InfoNCE's target that is distributed over a query's negatives.
    """

    infonce_weight: Positive = 1.0
    temperature: Positive = 0.07
    label_smoothing: Share = 0.0

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        losses = [super().build(steps_per_epoch), InfoNCE(self.temperature, self.label_smoothing)]
        return CombinedLoss(losses, [1.0, self.infonce_weight], reduction=self.reduction)
