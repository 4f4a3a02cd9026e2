"""Contrastive losses: InfoNCE (softmax over candidates) and SigLIP's sigmoid loss (logistic regression per pair)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.losses.in_batch import InBatchLoss, LossPart, Tensor, is_negative, positive_scores
from vsemb.parts import Finite, Positive, Share


@keras.saving.register_keras_serializable("vsemb")
class InfoNCE(InBatchLoss):
    """Cross entropy of the softmax over the candidates (arXiv:1807.03748; CLIP, arXiv:2103.00020).

    When to use it: it is more stable than hinge losses and works best with large batches. For the learned temperature
    of CLIP, pass `DualEncoder(logit_scale=LogitScale())` and leave `temperature` at 1.

    Args:
        temperature: divisor of the scores, > 0.
        label_smoothing: share of the target that is distributed evenly over a query's negatives, in [0, 1).
        **kwargs: arguments of `InBatchLoss`; CLIP uses the mean over queries.

    Raises:
        InvalidArgumentError: for a temperature <= 0 or a smoothing outside [0, 1).

    Example: two candidates with equal scores give log 2.

    >>> round(float(InfoNCE()([[1, 0], [0, 1]], [[0.5, 0.5], [0.1, 0.1]])), 4)
    0.6931
    """

    default_reduction = "mean"

    def __init__(self, temperature: Positive = 1.0, label_smoothing: Share = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        logits = ops.convert_to_tensor(scores) / self.temperature
        # A finite number, not -inf: the gradient of an ignored candidate must be 0, not NaN.
        logits = logits if mask is None else ops.where(mask, logits, -1e30)
        normalizer = ops.logsumexp(logits, axis=1)
        target = ops.squeeze(positive_scores(labels, logits), axis=1)
        if self.label_smoothing:
            negative = is_negative(labels, mask)
            count = ops.sum(ops.cast(negative, logits.dtype), axis=1)
            spread = ops.sum(ops.where(negative, logits, 0.0), axis=1) / ops.maximum(count, 1.0)
            # A query without negatives keeps its whole target, so that its loss is 0.
            share = ops.where(count > 0, self.label_smoothing, 0.0)
            target = (1 - share) * target + share * spread
        return normalizer - target

    def collapsed_query(self, candidates: int) -> float:
        return math.log(candidates)


@dataclass(frozen=True)
class Contrastive(LossPart, kind="infonce"):
    """InfoNCE, as in CLIP.

    Attributes:
        temperature: divisor of the scores; the initial value if it is learned.
        learn_temperature: whether the temperature is learned.
        label_smoothing: share of the target that is distributed over a query's negatives.
    """

    temperature: Positive = 0.07
    learn_temperature: bool = True
    label_smoothing: Share = 0.0

    def build(self, steps_per_epoch: int) -> InfoNCE:
        temperature = 1.0 if self.learn_temperature else self.temperature
        return InfoNCE(temperature, self.label_smoothing, reduction=self.reduction)

    def logit_scale(self) -> tuple[float, float | None] | None:
        return (self.temperature, None) if self.learn_temperature else None


@keras.saving.register_keras_serializable("vsemb")
class SigmoidLoss(InBatchLoss):
    """Sigmoid loss of SigLIP: minus the sum over candidates of log sigmoid(z (score / temperature + bias)).

    z is 1 for the own pair and -1 for others (Zhai et al. 2023, arXiv:2303.15343, section 3.2). Each term depends on
    one candidate, so the scores of all pairs are never needed at once, see `block_size` of `DualEncoder`.

    When to use it: in place of `InfoNCE` for batches of fewer than a few thousand pairs. For the learned temperature
    and bias of the paper, pass `DualEncoder(logit_scale=LogitScale(10.0, bias=-10.0))` and leave the arguments of this
    loss at their defaults. Both directions are the same sum over all pairs. With weights 0.5 and 0.5, or 1 and 0, a
    `DualEncoder` minimizes the loss of the paper; with 1 and 1, twice this loss.

    Args:
        temperature: divisor of the scores, > 0.
        bias: added to the scaled scores. Use about minus the logarithm of the batch size, so that the many negatives
            have little weight at the start.
        **kwargs: arguments of `InBatchLoss`; the paper uses the mean over queries.

    Raises:
        InvalidArgumentError: for a temperature <= 0 or a bias that is not finite.

    Example: a score of 0 costs log 2 per candidate; each query has two candidates.

    >>> round(float(SigmoidLoss()([[1, 0], [0, 1]], [[0.0, 0.0], [0.0, 0.0]])), 4)
    1.3863
    """

    default_reduction = "mean"
    additive = True

    def __init__(self, temperature: Positive = 1.0, bias: Finite = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        logits = ops.convert_to_tensor(scores) / self.temperature + self.bias
        costs = ops.softplus(ops.where(ops.equal(labels, 1), -logits, logits))
        return ops.sum(costs if mask is None else ops.where(mask, costs, 0.0), axis=1)


@dataclass(frozen=True)
class Sigmoid(LossPart, kind="sigmoid"):
    """Sigmoid loss, as in SigLIP: a logistic regression per pair.

    Attributes:
        temperature: divisor of the scores; the initial value if it is learned.
        bias: added to the scaled scores; the initial value if it is learned.
        learn_temperature: whether temperature and bias are learned.
    """

    temperature: Positive = 0.07
    bias: Finite = -10.0
    learn_temperature: bool = True

    def build(self, steps_per_epoch: int) -> SigmoidLoss:
        temperature, bias = (1.0, 0.0) if self.learn_temperature else (self.temperature, self.bias)
        return SigmoidLoss(temperature, bias, reduction=self.reduction)

    def logit_scale(self) -> tuple[float, float | None] | None:
        return (self.temperature, self.bias) if self.learn_temperature else None
