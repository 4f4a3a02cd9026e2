"""The entailment loss of MERU (arXiv:2304.09172): an image lies in the cone of its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from vsemb.losses.contrastive import Contrastive
from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, ItemLoss, own_items
from vsemb.ops.lorentz import MIN_RADIUS, cone_violation
from vsemb.parts import Positive

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class ConeEntailment(ItemLoss):
    """The angle by which an image lies outside the entailment cone of its text, see `vsemb.ops.lorentz.cone_violation`.

    When to use it: with the similarity `lorentz`, together with `InfoNCE` in a `vsemb.losses.CombinedLoss`. It does not
    depend on negatives, so it does not train a model alone.

    Args:
        min_radius: K of the paper, see `vsemb.ops.lorentz.half_aperture`.
        **kwargs: arguments of `InBatchLoss`; the paper uses the mean over pairs.

    Example: the first image lies behind its text. The second lies between its text and the root: its angle is pi, and
    the half aperture of the cone is 0.1711.

    >>> from keras import ops
    >>> images, texts = ops.array([[2.0, 0.0], [0.0, 0.5]]), ops.array([[1.0, 0.0], [0.0, 1.0]])
    >>> ConeEntailment().of_items(images, texts, ops.eye(2), ops.ones((2, 2), "bool")).numpy().round(3).tolist()
    [0.0, 2.9709999561309814]
    """

    default_reduction = "mean"

    def __init__(self, min_radius: Positive = MIN_RADIUS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Compute the loss of each text with its own image; arguments as in `InBatchLoss`, with one vector per item."""
        return cone_violation(own_items(images, labels), texts, self.min_radius)


@dataclass(frozen=True)
class ContrastiveEntailment(Contrastive, kind="infonce-entailment"):
    """InfoNCE and the entailment loss of MERU, for the similarity `lorentz`.

    Attributes:
        entailment_weight: weight of the entailment loss; InfoNCE has the weights of its directions.
        min_radius: distance from the root at which cones begin to narrow, K of the paper.
    """

    similarities: ClassVar[tuple[str, ...]] = ("lorentz",)

    entailment_weight: Positive = 0.2
    min_radius: Positive = MIN_RADIUS

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        losses: list[InBatchLoss] = [super().build(steps_per_epoch), ConeEntailment(self.min_radius)]
        return CombinedLoss(losses, [1.0, self.entailment_weight], reduction=self.reduction)
