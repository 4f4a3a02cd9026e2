"""Sparse alignment of words with regions of their own image: SPARC (Bica et al. 2024, arXiv:2401.09865)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.losses.in_batch import CombinedLoss, InBatchLoss, ItemLoss, own_items
from vsemb.losses.ranking import RankingInfoNCE
from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Positive
from vsemb.systems.regions.similarities import item_mask, item_products

Tensor = Any

_LOWEST = -1e30


@keras.saving.register_keras_serializable("vsemb")
class SparseAlignment(ItemLoss):
    """Contrast the words of a text with their groups of regions, inside the text (SPARC, section 3.2).

    The products s_ti of the words of a text with the P regions of its own image are scaled to [0, 1] for each word.
    Numbers below 1 / P become 0, and the others weigh the regions (equations 2 to 4):

        w_ti = s'_ti / sum over j of s'_tj,    c_t = sum over i of w_ti v_i

    The group c_t belongs to the word t, and the other words of the text are negatives (equation 5):

        loss of a word = 1/2 (CE over k of cos(c_t, s_k) / temperature + CE over k of cos(s_t, c_k) / temperature)

    The loss of a text is the mean over its words. Other images and texts do not matter.

    When to use it: beside a loss over the scores of pairs, in a `vsemb.losses.CombinedLoss`, so that words find their
    objects.

    Args:
        temperature: divisor of the cosines.
        **kwargs: arguments of `InBatchLoss`.

    Example: each of two words equals one of two regions, which is its group. Both cross entropies are log(1 + e^-1).

    >>> items = ops.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> loss = SparseAlignment(temperature=1.0).of_items(items, items, ops.array([[1]]), ops.array([[True]]))
    >>> round(float(loss[0]), 4)
    0.3133
    """

    def __init__(self, temperature: Positive = 0.07, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def of_items(self, images: Tensor, texts: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        words = ops.cast(texts, "float32")
        own = own_items(ops.cast(images, "float32"), labels)
        groups = ops.matmul(_weights(item_products(words, own), item_mask(own)), own)  # (texts, T, dim)
        counted = item_mask(words)
        cosines = ops.matmul(l2_normalize(groups), ops.swapaxes(l2_normalize(words), 1, 2)) / self.temperature
        both = _cross_entropy(cosines, counted) + _cross_entropy(ops.swapaxes(cosines, 1, 2), counted)
        number = ops.sum(ops.cast(counted, "float32"), axis=1)
        return ops.sum(ops.where(counted, both / 2, 0.0), axis=1) / ops.maximum(number, 1.0)


def _weights(products: Tensor, real: Tensor) -> Tensor:
    """Return the weights of the regions of each word, (texts, T, M), from products of the same shape.

    Args:
        products: (texts, T, M) float32.
        real: (texts, M) bool, false for padding.
    """
    mask = ops.expand_dims(real, 1)
    least = ops.min(ops.where(mask, products, -_LOWEST), axis=2, keepdims=True, initial=-_LOWEST)
    most = ops.max(ops.where(mask, products, _LOWEST), axis=2, keepdims=True, initial=_LOWEST)
    # Equal products, as of padding or a single region, all have the weight of the best.
    spread = most - least
    scaled = ops.where(spread > 0, (products - least) / ops.where(spread > 0, spread, 1.0), 1.0)
    count = ops.expand_dims(ops.sum(ops.cast(mask, "float32"), axis=2), 2)
    kept = ops.where(ops.logical_and(mask, scaled >= 1.0 / ops.maximum(count, 1.0)), scaled, 0.0)
    return kept / ops.maximum(ops.sum(kept, axis=2, keepdims=True), 1e-6)


def _cross_entropy(logits: Tensor, counted: Tensor) -> Tensor:
    """Return the cross entropy of each row with its own column, (texts, T), without columns of padding."""
    logits = ops.where(ops.expand_dims(counted, 1), logits, _LOWEST)
    return ops.logsumexp(logits, axis=2) - ops.diagonal(logits, axis1=1, axis2=2)


@dataclass(frozen=True)
class RankingSparse(RankingInfoNCE, kind="ranking-sparse"):
    """Sum of `ranking-infonce` and the sparse alignment of words with regions (SPARC).

    Attributes:
        sparse_weight: weight of the sparse alignment; the ranking loss has weight 1.
        sparse_temperature: divisor of its cosines.
    """

    accepts: ClassVar[str] = "multi_vector"

    sparse_weight: Positive = 1.0
    sparse_temperature: Positive = 0.07

    def build(self, steps_per_epoch: int) -> CombinedLoss:
        losses: list[InBatchLoss] = [super().build(steps_per_epoch), SparseAlignment(self.sparse_temperature)]
        return CombinedLoss(losses, [1.0, self.sparse_weight], reduction=self.reduction)
