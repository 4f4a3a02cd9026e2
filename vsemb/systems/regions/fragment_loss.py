"""Fragment alignment: the multiple-instance objective of DeFrag (Karpathy, Joulin, Fei-Fei 2014, arXiv:1406.5679)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.errors import invalid_argument
from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, ItemLoss
from vsemb.losses.ranking import Ranking
from vsemb.parts import Positive
from vsemb.systems.regions.similarities import all_products, item_mask, turned

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class FragmentAlignment(ItemLoss):
    """Hinges on the inner products of words and regions, with latent positives (DeFrag, section 3.3.1).

    A word s_t is assumed to describe some regions of its own image and no region of other images:

        loss of a word = mean over its positives of max(0, margin - v_i . s_t)
                         + mean over its negatives of max(0, margin + v_i . s_t)

    Its positives are the regions of its own image with v_i . s_t > 0, and always the best one (the heuristic of mi-SVM,
    Andrews et al. 2003). Its negatives are the image's other regions and all regions of other images. The loss of a
    text is the sum over its words. Batch items with the same image and another text are ignored.

    When to use it: together with a ranking loss over `sum-sim` (equation 7 of Karpathy and Fei-Fei 2015), in a
    `vsemb.losses.CombinedLoss`. With `max-sim` (equation 8) it is not needed.

    Args:
        margin: required inner product; the authors' code has 1.
        **kwargs: arguments of `InBatchLoss`.

    Example: the word's own image has products 2 and -3, the other image 0.5. The best region is the positive, with
    hinge 0. The negatives have the hinges 0 and 1.5.

    >>> regions, words = ops.array([[[2.0], [-3.0]], [[0.5], [0.0]]]), ops.array([[[1.0]]])
    >>> loss = FragmentAlignment()
    >>> float(loss.of_items(regions, words, ops.array([[1, 0]]), ops.array([[True, True]]))[0])
    0.75
    """

    def __init__(self, margin: Positive = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        products = all_products(ops.cast(images, "float32"), turned(texts))  # (images, regions, words, texts)
        real = ops.expand_dims(ops.expand_dims(item_mask(images), -1), -1)
        own = ops.logical_and(real, _as_products(ops.equal(labels, 1)))
        used = ops.logical_and(real, _as_products(mask))
        best = ops.max(ops.where(own, products, -float("inf")), axis=(0, 1), keepdims=True, initial=-float("inf"))
        positive = ops.logical_and(own, ops.logical_or(products > 0, products >= best))
        negative = ops.logical_and(used, ops.logical_not(positive))
        words = _mean(ops.relu(self.margin - products), positive) + _mean(ops.relu(self.margin + products), negative)
        return ops.sum(ops.where(ops.transpose(item_mask(texts)), words, 0.0), axis=0)


def _as_products(pairs: Tensor) -> Tensor:
    """Bring (texts, images) to (images, 1, 1, texts)."""
    return ops.expand_dims(ops.expand_dims(ops.transpose(pairs), 1), 1)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over images and regions, (words, texts); 0 without a region."""
    count = ops.sum(ops.cast(mask, "float32"), axis=(0, 1))
    return ops.sum(ops.where(mask, values, 0.0), axis=(0, 1)) / ops.maximum(count, 1.0)


@dataclass(frozen=True)
class RankingFragments(Ranking, kind="ranking-fragments"):
    """Sum of the pairwise ranking loss and DeFrag's multiple-instance objective on words and regions.

    Attributes:
        fragment_weight: weight of the fragment alignment; the ranking loss has weight 1.
        fragment_margin: required inner product of a word with its regions.
    """

    accepts: ClassVar[str] = "multi_vector"

    fragment_weight: Positive = 1.0
    fragment_margin: Positive = 1.0

    def check(self) -> None:
        super().check()
        if self.block_size is not None:
            raise invalid_argument("block_size", self.block_size, "null with the loss 'ranking-fragments'")

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        losses: list[InBatchLoss] = [super().build(steps_per_epoch), FragmentAlignment(self.fragment_margin)]
        return CombinedLoss(losses, [1.0, self.fragment_weight], reduction=self.reduction or "sum")
