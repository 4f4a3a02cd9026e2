"""Pairwise ranking: a query must score its own pair above every other by a margin."""

from __future__ import annotations

from dataclasses import dataclass, field

import keras
from keras import ops

from vsemb.losses.hinge import All, HingeLoss, Negatives, Which
from vsemb.losses.in_batch import REDUCTIONS, LossPart, Tensor, is_negative, positive_scores
from vsemb.parts import NonNegative


@keras.saving.register_keras_serializable("vsemb")
class PairwiseRanking(HingeLoss):
    """Hinge of margin - s(own) + s(negative), over all negatives or the hardest one.

    Which one to use: `"all"` (Kiros et al. 2014, equation 6) is the safe start and best with noisy
    captions; `"hardest"` (VSE++, equation 6 of arXiv:1707.05612) gives the better recall, but can
    collapse to one point at the start, where the loss stays at `collapsed_value`. `warmup_steps`
    passes from the one to the other: the weight of the hardest negative rises linearly from 0 to 1
    over the second half of the warm-up, and the sum has weight one minus that.

    Args:
        margin: the margin, in units of the score, >= 0. Kiros et al.: 0.2.
        negatives: `"all"` or `"hardest"`.
        warmup_steps: optimizer steps before `"hardest"` is fully on; 0 starts with it.
        reduction: over queries; the papers sum.
        name: name of the loss.

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
        margin: float = 0.2,
        negatives: Which = "all",
        warmup_steps: int = 0,
        *,
        reduction: str | None = None,
        name: str = "pairwise_ranking",
    ) -> None:
        super().__init__(margin, negatives, warmup_steps, reduction=reduction, name=name)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        hinge = ops.relu(self.margin - positive_scores(labels, scores) + scores)
        hinge = ops.where(is_negative(labels, mask), hinge, 0.0)  # (queries, candidates)
        return self.choose(lambda: ops.sum(hinge, axis=1), lambda: ops.max(hinge, axis=1))

    def collapsed_value(self, queries: int, candidates: int) -> float:
        """Returns the loss, both directions, at which all embeddings are one point.

        Every hinge is then the margin (Wu et al. 2017, arXiv:1706.07567, on why it is a saddle).

        Args:
            queries: number of queries a direction.
            candidates: number of candidates a query.
        """
        per_query = self.margin * (1 if self.negatives == "hardest" else candidates - 1)
        return 2 * per_query * (queries if self.reduction == "sum" else 1)


@dataclass(frozen=True)
class Ranking(LossPart, kind="ranking"):
    """Pairwise ranking by a margin (Kiros et al. 2014; VSE++).

    Attributes:
        margin: by which a query scores its own pair above the others.
        negatives: which negatives count.
    """

    margin: NonNegative = 0.2
    negatives: Negatives = field(default_factory=All)

    def build(self, steps_per_epoch: int) -> PairwiseRanking:
        warmup = self.negatives.warmup_steps(steps_per_epoch)
        reduction = REDUCTIONS[self.reduction]
        return PairwiseRanking(self.margin, self.negatives.name, warmup, reduction=reduction)
