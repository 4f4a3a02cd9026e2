"""Pairwise ranking: a query must score its own pair above every other by a margin; alone, or with InfoNCE."""

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

    Which one to use: `"all"` (Kiros et al. 2014, equation 6) is the safe start and best with noisy
    captions. `"hardest"` (VSE++, equation 6 of arXiv:1707.05612) gives better recall. It can
    collapse to one point at the start, where the loss stays at `collapsed_value`. `warmup_steps`
    passes from the one to the other: the weight of the hardest negative rises linearly from 0 to 1
    over the second half of the warm-up, and the sum has weight one minus that.

    Args:
        margin: the margin, in units of the score, >= 0. Kiros et al.: 0.2.
        negatives: `"all"` or `"hardest"`.
        warmup_steps: optimizer steps before `"hardest"` is fully on; 0 starts with it.
        **kwargs: arguments of `InBatchLoss`; the papers sum over queries.

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
        return self.over_negatives(lambda: ops.sum(hinge, axis=1), lambda: ops.max(hinge, axis=1))

    def over_negatives(self, over_all: Callable[[], Tensor], hardest: Callable[[], Tensor]) -> Tensor:
        """Returns each query's loss, (queries,), from one or, in a warm-up, both of two ways to compute it.

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
        """Returns the loss of one query if all embeddings are one point.

        Every hinge is then the margin (Wu et al. 2017, arXiv:1706.07567, on why it is a saddle).

        Args:
            candidates: number of candidates per query.
        """
        return self.margin * (1 if self.negatives == "hardest" else candidates - 1)


@dataclass(frozen=True)
class Negatives(Part, family="negatives"):
    """Which negatives of a query count; base of the family `negatives`, whose kinds `PairwiseRanking` takes."""

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """Returns argument `warmup_steps` of `PairwiseRanking`."""
        return 0


@dataclass(frozen=True)
class All(Negatives, kind="all"):
    """All negatives of the batch, added up."""


@dataclass(frozen=True)
class Hardest(Negatives, kind="hardest"):
    """The hardest negative of the batch (VSE++).

    Attributes:
        warmup_epochs: epochs in which the sum over all negatives passes into the hardest one.
    """

    warmup_epochs: NonNegative = 0.0

    def warmup_steps(self, steps_per_epoch: int) -> int:
        return round(self.warmup_epochs * steps_per_epoch)


@dataclass(frozen=True)
class Ranking(LossPart, kind="ranking"):
    """Pairwise ranking by a margin (Kiros et al. 2014; VSE++).

    Attributes:
        margin: by which a query scores its own pair above the others.
        negatives: which negatives count.

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
