"""Training on the pairs of a batch with the smallest losses, for data in which some captions belong to other images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.errors import invalid_argument
from vsemb.losses.in_batch import InBatchLoss, Tensor
from vsemb.ops.replicas import gather_across_replicas
from vsemb.parts import NonNegative, Part, Share, at_least

# Of a product of a share and a number of queries.
_ROUNDING = 1e-4


@keras.saving.register_keras_serializable("vsemb")
class SmallLoss(InBatchLoss):
    """Leave out the queries with the largest losses: their loss is 0.

    When to use it: if some captions belong to other images. A model learns right pairs before wrong ones, so wrong
    pairs have large losses (Han et al. 2018, arXiv:1804.06872). Each direction selects its own queries. Under a
    distribution strategy, the queries of all replicas are compared.

    Args:
        loss: the loss of a query.
        dropped: share of the queries that is left out, such as the share of wrong pairs.
        warmup_steps: optimizer steps in which this share increases from 0, linearly; 0 for none.
        **kwargs: arguments of `InBatchLoss`; the default reduction is that of `loss`, over all queries.

    Raises:
        InvalidArgumentError: for a share outside [0, 1), a negative number of steps, or a loss with terms of
            embeddings.

    Example: the hinges of the rows are 0.1 and 0.5, see `PairwiseRanking`.

    >>> from vsemb.losses import PairwiseRanking
    >>> loss = SmallLoss(PairwiseRanking(margin=0.2), dropped=0.5)
    >>> round(float(loss([[1, 0], [0, 1]], [[0.9, 0.8], [0.8, 0.5]])), 6)
    0.1
    """

    def __init__(
        self, loss: InBatchLoss, dropped: Share, warmup_steps: Annotated[int, at_least(0)] = 0, **kwargs: Any
    ) -> None:
        super().__init__(**{"reduction": loss.reduction, **kwargs})
        self.keep_arguments(locals())
        if loss.over_items:
            fix = "The terms of embeddings would keep the pairs that are left out."
            raise invalid_argument("loss", type(loss).__name__, "a loss of scores alone", fix)
        self.over_classes = loss.over_classes

    def bind_step(self, step: Any) -> None:
        super().bind_step(step)
        self.loss.bind_step(step)

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        values = self.loss.call(labels, scores, mask)
        ordered = ops.sort(gather_across_replicas(ops.stop_gradient(values)))
        queries = ops.shape(ordered)[0]
        # A product such as 0.7 x 100 may be rounded down.
        dropped = ops.floor(self._dropped() * ops.cast(queries, "float32") + _ROUNDING)
        kept = ops.cast(ops.arange(queries), "float32") < ops.cast(queries, "float32") - dropped
        largest = ops.max(ops.where(kept, ordered, -math.inf), initial=-math.inf)
        # NaN is above nothing, and stays: trainings look for it.
        return ops.where(values > largest, 0.0, values)

    def collapsed_query(self, candidates: int) -> float:
        # Equal losses are all kept.
        return self.loss.collapsed_query(candidates)

    def _dropped(self) -> Any:
        if self.warmup_steps == 0 or self.step is None:
            return self.dropped
        return self.dropped * ops.minimum(ops.cast(self.step, "float32") / self.warmup_steps, 1.0)


@dataclass(frozen=True)
class TrainedPairs(Part, family="pairs"):
    """Pairs of a batch that are trained on; base of the family `pairs`.

    Class attributes:
        compares: whether the losses of all queries are compared, so that they must be in memory together.
    """

    compares: ClassVar[bool] = False

    def select(self, loss: InBatchLoss, steps_per_epoch: int) -> InBatchLoss:
        """Return the loss of the selected pairs.

        Args:
            loss: the loss of all pairs.
            steps_per_epoch: for fields that count epochs.
        """
        return loss


@dataclass(frozen=True)
class AllPairs(TrainedPairs, kind="all"):
    """All pairs."""


@dataclass(frozen=True)
class SmallLossPairs(TrainedPairs, kind="small-loss"):
    """Pairs with the smallest losses, for data with wrong captions.

    Attributes:
        dropped: share of the pairs that is left out, such as the share of wrong captions.
        warmup_epochs: epochs in which this share increases from 0.
    """

    compares: ClassVar[bool] = True

    dropped: Share = 0.2
    warmup_epochs: NonNegative = 1.0

    def select(self, loss: InBatchLoss, steps_per_epoch: int) -> SmallLoss:
        return SmallLoss(loss, self.dropped, round(self.warmup_epochs * steps_per_epoch))
