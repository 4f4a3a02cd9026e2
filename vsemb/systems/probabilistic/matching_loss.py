"""The loss of PCME++ (arXiv:2305.18171): matching with pseudo-positives, and a prior of the distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.losses.contrastive import Sigmoid, SigmoidLoss
from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, ItemLoss, own_items, positive_scores
from vsemb.parts import Finite, NonNegative, Positive
from vsemb.systems.probabilistic.gaussians import divergence

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class PseudoPositives(SigmoidLoss):
    """`SigmoidLoss` in which candidates that score at least as high as the own pair are positives (Chun 2024).

    Many pairs that datasets count as negatives match. If such a candidate scores as high as the own pair, this loss
    does not push it away (section 2.3).

    When to use it: with a small weight beside `SigmoidLoss`; alone, it does not rank the own pair before others.

    Args:
        temperature: as in `SigmoidLoss`; 1 / a of the paper.
        bias: as in `SigmoidLoss`; b of the paper.
        **kwargs: arguments of `InBatchLoss`.

    Example: the second candidate scores higher than the own pair, so a high score of it costs little.

    >>> labels, scores = [[1, 0]], [[0.0, 9.0]]
    >>> round(float(SigmoidLoss()(labels, scores)), 2), round(float(PseudoPositives()(labels, scores)), 2)
    (9.69, 0.69)
    """

    # A candidate is compared with the own pair.
    additive = False

    def call(self, labels: Tensor, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        near = ops.greater_equal(scores, positive_scores(labels, scores))
        # XLA may compute the own score twice, and round it otherwise.
        positive = ops.logical_or(ops.equal(labels, 1), near)
        return super().call(ops.cast(positive, "int32"), scores, mask)


@keras.saving.register_keras_serializable("vsemb")
class Prior(ItemLoss):
    """Divergence of each text and its image from the standard normal distribution (VIB, section 2.2).

    It keeps variances from collapsing to 0, see `vsemb.systems.probabilistic.gaussians.divergence`. It is multiplied by
    the number of candidates, since `SigmoidLoss` is a sum over candidates. In the paper, both are means.

    When to use it: with the similarity `csd` and a small weight, in a `vsemb.losses.CombinedLoss`. It does not depend
    on pairs, so it does not train a model alone.

    Args:
        **kwargs: arguments of `InBatchLoss`.

    Example: two standard normal distributions.

    >>> Prior().of_items(ops.zeros((1, 4)), ops.zeros((1, 4)), ops.eye(1), ops.ones((1, 1), "bool")).numpy().tolist()
    [0.0]
    """

    default_reduction = "mean"

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Compute the loss of each text with its own image; arguments as in `InBatchLoss`, with one row per item."""
        both = divergence(own_items(images, labels)) + divergence(texts)
        return both * ops.cast(ops.shape(labels)[1], both.dtype)


@dataclass(frozen=True)
class Matching(Sigmoid, kind="matching"):
    """The loss of PCME++: a sigmoid loss, pseudo-positives and a prior, for the similarity `csd`.

    Attributes:
        temperature: divisor of the scores, 1 / a; the initial value if it is learned.
        bias: b, added to the scaled scores; the initial value if it is learned.
        learn_temperature: whether temperature and bias are learned.
        pseudo_weight: weight of the loss with pseudo-positives, alpha of the paper.
        prior_weight: weight of the divergence from the standard normal distribution, beta of the paper.
    """

    similarities: ClassVar[tuple[str, ...]] = ("csd",)

    temperature: Positive = 0.2
    bias: Finite = 5.0
    pseudo_weight: NonNegative = 0.1
    prior_weight: NonNegative = 1e-4

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        scale = (1.0, 0.0) if self.learn_temperature else (self.temperature, self.bias)
        losses: list[InBatchLoss] = [SigmoidLoss(*scale), PseudoPositives(*scale), Prior()]
        weights = [1.0, self.pseudo_weight, self.prior_weight]
        return CombinedLoss(losses, weights, reduction=self.reduction)
