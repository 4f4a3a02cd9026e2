"""What the row-wise losses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.ops.relation import NEGATIVE, POSITIVE
from vsemb.ops.replicas import replica_count
from vsemb.parts import Count, NonNegative, Part

Tensor = Any


class InBatchLoss(keras.losses.Loss):
    """Base of the losses over one row of candidates per query.

    Call args of every subclass:
        relation: (queries, candidates), 1 for the query's own pair, 0 for a negative, -1 for a
            candidate to ignore, 2 for the mean of the query's own class. Each row holds exactly one 1.
        scores: (queries, candidates) float, higher is better.

    Returns one value per query, so that Keras scales it for the replicas of a strategy. Applied to
    the scores and their transpose a loss is symmetric, which is what `DualEncoder` does.
    """

    #: Name of the default reduction, the one the source of the loss uses.
    default_reduction = "sum"

    #: Whether the candidates are classes and not items, see `vsemb.ops.relation.class_rows`.
    over_classes = False

    #: Whether the loss of a query is a sum over its candidates, of terms that know of no other candidate.
    #: Then candidates may come in parts, and a matrix of scores and its transpose have one sum of losses.
    additive = False

    #: The number of finished optimizer steps: an int, a variable, or None outside training.
    step: Any = None

    def __init__(self, *, reduction: str | None = None, name: str | None = None) -> None:
        super().__init__(name=name, reduction=reduction or self.default_reduction, dtype="float32")

    def bind_step(self, step: Any) -> None:
        """Hands over the optimizer's step counter, for losses that change with it."""
        self.step = step

    def reduced(self, total: Tensor, queries: Tensor) -> Tensor:
        """Reduces a sum over queries as calling the loss would have reduced their values.

        Args:
            total: scalar, the sum of what `call` returns for the queries of this replica.
            queries: how many there are.
        """
        if self.reduction == "sum":
            return total
        return total / (ops.cast(queries, total.dtype) * replica_count())

    def get_config(self) -> dict[str, Any]:
        return {"reduction": self.reduction, "name": self.name}


def positive_scores(relation: Tensor, scores: Tensor) -> Tensor:
    """Returns each query's score with its own pair, (queries, 1)."""
    own = ops.equal(relation, POSITIVE)
    return ops.sum(ops.where(own, scores, 0.0), axis=1, keepdims=True)


def is_negative(relation: Tensor) -> Tensor:
    """Returns (queries, candidates) bool, true where a candidate may serve as a negative."""
    return ops.equal(relation, NEGATIVE)


REDUCTIONS = {None: None, "sum": "sum", "mean": "sum_over_batch_size"}


@dataclass(frozen=True)
class LossPart(Part, family="loss"):
    """A loss over the candidates in a batch; base of the family `loss`.

    Attributes:
        image_weight: weight of the direction whose queries are images.
        text_weight: weight of the direction whose queries are texts.
        block_size: queries whose scores are in memory at a time; null for all. The loss stays the same.
        reduction: over queries, `sum` or `mean`; null for the loss' own.

    Class attributes:
        over_classes: whether the candidates are classes, see `InBatchLoss.over_classes`.
    """

    over_classes: ClassVar[bool] = False

    image_weight: NonNegative = 1.0
    text_weight: NonNegative = 1.0
    block_size: Count | None = None
    reduction: Literal["sum", "mean"] | None = None

    def build(self, steps_per_epoch: int) -> InBatchLoss:
        """Builds the Keras loss.

        Args:
            steps_per_epoch: for fields that count epochs.
        """
        raise NotImplementedError

    def logit_scale(self) -> tuple[float, float | None] | None:
        """Returns the learned temperature and bias that the model holds, at their start; None for none."""
        return None
