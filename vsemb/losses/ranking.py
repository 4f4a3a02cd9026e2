"""Pairwise ranking: a query must score its own pair above every other by a margin."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from vsemb.errors import invalid_argument
from vsemb.losses.row import RowLoss, Tensor, hardest_weight, is_negative, positive_scores

NEGATIVES = ("all", "hardest")


@keras.saving.register_keras_serializable("vsemb")
class PairwiseRanking(RowLoss):
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
        negatives: str = "all",
        warmup_steps: int = 0,
        *,
        reduction: str | None = None,
        name: str = "pairwise_ranking",
    ) -> None:
        super().__init__(reduction=reduction, name=name)
        if not 0 <= margin < math.inf:
            raise invalid_argument("margin", margin, "a finite number >= 0")
        if negatives not in NEGATIVES:
            raise invalid_argument("negatives", negatives, f"one of {', '.join(NEGATIVES)}")
        if warmup_steps < 0:
            raise invalid_argument("warmup_steps", warmup_steps, "an integer >= 0")
        self.margin = margin
        self.negatives = negatives
        self.warmup_steps = warmup_steps

    def call(self, relation: Tensor, scores: Tensor) -> Tensor:
        hinge = ops.relu(self.margin - positive_scores(relation, scores) + scores)
        hinge = ops.where(is_negative(relation), hinge, 0.0)  # (queries, candidates)
        if self.negatives == "all":
            return ops.sum(hinge, axis=1)
        hardest = ops.max(hinge, axis=1)
        if self.warmup_steps == 0 or self.step is None:
            return hardest
        weight = hardest_weight(self.step, self.warmup_steps)
        return weight * hardest + (1.0 - weight) * ops.sum(hinge, axis=1)

    def collapsed_value(self, queries: int, candidates: int) -> float:
        """Returns the loss, both directions, at which all embeddings are one point.

        Every hinge is then the margin (Wu et al. 2017, arXiv:1706.07567, on why it is a saddle).

        Args:
            queries: number of queries a direction.
            candidates: number of candidates a query.
        """
        per_query = self.margin * (1 if self.negatives == "hardest" else candidates - 1)
        return 2 * per_query * (queries if self.reduction == "sum" else 1)

    def get_config(self) -> dict[str, Any]:
        config = {"margin": self.margin, "negatives": self.negatives, "warmup_steps": self.warmup_steps}
        return {**super().get_config(), **config}
