"""Structured joint embedding: hinge loss between a pair and every wrong class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.losses.in_batch import Tensor, is_negative, positive_scores
from vsemb.losses.ranking import PairwiseRanking, Ranking
from vsemb.parts import NonNegative


@keras.saving.register_keras_serializable("vsemb")
class StructuredJointEmbedding(PairwiseRanking):
    """max over classes y of max(0, Delta(y_n, y) + E[F(v_n, t)] - F(v_n, t_n)), t of class y.

    Reed et al. 2016, equations 5 to 7: l_v with image queries, l_t with text queries; the sum of both is the
    symmetric DS-SJE, one of them the asymmetric DA-SJE. Delta is the 0-1 loss times `margin`, so it is 0 for the
    query's own class. The expectation is the mean over the batch's items of class y, from
    `vsemb.models.in_batch.class_labels`. With one item per class
    (`vsemb.systems.zero_shot.class_batches.ClassBatches`), it is the item's score.

    Which one to use: `"hardest"` is the paper's equation. `"all"` is the authors' released code: the sum of the hinges
    of all wrong classes over the number of classes, which learns from more pairs per step. From random weights, the
    hardest class alone can shrink all embeddings to zero, where each loss is the margin. `warmup_steps` blends from
    `"all"` to `"hardest"` as in `PairwiseRanking`. The class ids are the inputs `class_id` of `DualEncoder`. Use
    `PairwiseRanking` for data without classes.

    Args:
        margin: Delta of a wrong class, >= 0; default 1.
        negatives: `"hardest"` (the default) or `"all"` wrong classes.
        **kwargs: arguments of `PairwiseRanking`; the paper uses the mean over queries.

    Raises:
        InvalidArgumentError: for a negative margin or warm-up, or unknown `negatives`.

    Example: F = [[2.9, 2.1], [0.4, 2.7]]. Row 0: 1 + 2.1 - 2.9 = 0.2; row 1: 1 + 0.4 - 2.7 < 0, so 0.

    >>> loss = StructuredJointEmbedding()
    >>> round(float(loss([[1, 0], [0, 1]], [[2.9, 2.1], [0.4, 2.7]])), 6)
    0.1
    """

    default_reduction = "mean"
    over_classes = True

    def __init__(self, margin: float = 1.0, negatives: Literal["all", "hardest"] = "hardest", **kwargs: Any) -> None:
        super().__init__(margin, negatives, **kwargs)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        ahead = scores - positive_scores(labels, scores)  # (queries, candidates)
        wrong = is_negative(labels, mask)
        hinge = ops.where(wrong, ops.relu(self.margin + ahead), 0.0)

        def over_all() -> Tensor:
            return ops.sum(hinge, axis=1) / (1.0 + ops.sum(ops.cast(wrong, "float32"), axis=1))

        def hardest() -> Tensor:
            own_class = ops.where(ops.equal(labels, 1), ops.relu(ahead), 0.0)
            return ops.maximum(ops.max(hinge, axis=1, initial=0.0), ops.max(own_class, axis=1, initial=0.0))

        return self.over_negatives(over_all, hardest)

    def collapsed_query(self, candidates: int) -> float:
        if self.negatives == "hardest":
            return self.margin
        return self.margin * (candidates - 1) / candidates


@dataclass(frozen=True)
class Structured(Ranking, kind="structured"):
    """Hinge loss between a pair and every wrong class (Reed et al. 2016).

    Attributes:
        margin: margin between a pair and the wrong classes.
        negatives: `hardest` or `all` wrong classes.
    """

    over_classes: ClassVar[bool] = True
    loss: ClassVar[Callable[..., PairwiseRanking]] = StructuredJointEmbedding

    margin: NonNegative = 1.0
