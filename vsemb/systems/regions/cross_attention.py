"""Stacked cross attention of words and regions (Lee et al. 2018, arXiv:1803.08024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Range
from vsemb.systems.regions.similarities import (
    MultiVectorSimilarity,
    Tensor,
    all_products,
    float32,
    in_blocks,
    item_mask,
    item_products,
    turned,
)

# Minimum of squared norms, to avoid division by zero.
_TINY = 1e-12


def _up_to(high: int) -> Range:
    """Return the range of numbers above 0, at most `high`."""
    return Range(f"a number above 0, at most {high}", lambda value: 0 < value <= high)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class CrossAttention(MultiVectorSimilarity, kind="cross-attention"):
    """Stacked cross attention: cosines of words with their attention-weighted regions (Lee et al. 2018).

    Words and regions have unit length. With `attend="regions"` every word attends to the regions, weighted by a softmax
    over their rectified cosines. The score is the mean cosine of a word and its attended vector. With `attend="words"`
    every region attends to the words. `cross_attention_scores` has the equations. In
    both cases `word_region_scores` returns the cosines before attention.

    Attributes:
        attend: attended items: `regions` (text-image in the paper) or `words` (image-text).
        temperature: inverse temperature of the softmax; null for the published one, 9 for regions and 4 for words.
        pooling: pooling over the attending words or regions: `mean`, or `lse` for log(sum of
            exp(lse_temperature R)) / lse_temperature, where the best have most weight.
        lse_temperature: inverse temperature of `lse`; published 6.

    Example: the first word equals a region; the second word is orthogonal to all regions and scores 0.

    >>> regions, words = ops.array([[[1.0, 0, 0], [0, 1, 0]]]), ops.array([[[1.0, 0, 0], [0, 0, 1]]])
    >>> round(float(CrossAttention().scores(regions, words)[0, 0]), 3)
    0.5
    """

    unit_length: ClassVar[bool] = True

    attend: Literal["regions", "words"] = "regions"
    # exp(30) squared, times a million items squared, is within float32.
    temperature: Annotated[float, _up_to(30)] | None = None
    pooling: Literal["mean", "lse"] = "mean"
    lse_temperature: Annotated[float, _up_to(80)] = 6.0

    def _options(self) -> dict[str, Any]:
        published = {"regions": 9.0, "words": 4.0}[self.attend]
        return self.arguments() | {"temperature": published if self.temperature is None else self.temperature}

    def normalize(self, embeddings: Tensor) -> Tensor:
        return l2_normalize(embeddings)

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return cross_attention_scores(images, texts, **self._options())

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return cross_attention_pair_scores(images, texts, **self._options())


def cross_attention_scores(regions: Tensor, words: Tensor, attend: str = "regions", **options: Any) -> Tensor:
    """Compute the scores of every image with every sentence by stacked cross attention (Lee et al. 2018, section 3.1).

    With `attend="regions"`, every word e_j attends to the regions v_i by their cosines s_ij:

        w_ij = [s_ij]+ / sqrt(sum over j of [s_ij]+ squared)    over the words of the sentence
        a_j  = sum over i of softmax_i(temperature w_ij) v_i     attended vector of the word
        R_j  = cosine(e_j, a_j)                                  relevance of the word

    The score is the mean of R over the words, or log(sum of exp(lse_temperature R)) / lse_temperature. With
    `attend="words"`, every region attends to the words in the same way.

    The vectors a_j are never computed. With x_i = exp(temperature w_ij) and the Gram matrix G of the regions,
    cosine(e_j, a_j) = (sum over i of x_i s_ij) / sqrt(x' G x): the denominators of the softmax cancel. The authors'
    code has a leaky rectifier of slope 0.1. Their equations and this function have [.]+ instead.

    Args:
        regions: (n, M, dim) float, of unit length or zero.
        words: (m, T, dim) float, of unit length or zero.
        attend: attended items, `"regions"` or `"words"`; default `"regions"`.
        **options: `temperature`, inverse temperature of the softmax, above 0 and at most 30, default 9, published 9 for
            regions and 4 for words; `pooling`, `"mean"` (default) or `"lse"`; `lse_temperature`, above 0 and at most
            80, default and published 6.

    Returns:
        (n, m) float32; 0 for images without regions and sentences without words.

    Memory is bounded as in `region_word_scores`, with a few arrays of a block's size.

    Example: the word attends nearly only to the region that equals it.

    >>> regions, words = ops.array([[[1.0, 0], [0, 1], [0, 0]]]), ops.array([[[1.0, 0]]])
    >>> round(float(cross_attention_scores(regions, words)[0, 0]), 4)
    1.0
    """

    def score(context: Any, queries: Any) -> Tensor:
        (items, mask, gram), (asking, real) = context, queries
        return _attended(all_products(items, asking), mask, gram, real, **options)

    if attend == "regions":
        return in_blocks(score, _context, _query, regions, words)
    # Regions attend to words: the same computation with exchanged roles.
    return in_blocks(lambda r, w: ops.transpose(score(w, r)), _query, _context, regions, words)


def cross_attention_pair_scores(regions: Tensor, words: Tensor, attend: str = "regions", **options: Any) -> Tensor:
    """Compute the scores of pairs of image and sentence, see `cross_attention_scores`.

    Args:
        regions: (..., M, dim) float, of unit length or zero.
        words: (..., T, dim) float, in a shape that broadcasts with `regions`.
        attend, **options: see `cross_attention_scores`.

    Returns:
        (...) float32.
    """
    context, queries = (regions, words) if attend == "regions" else (words, regions)
    mask = ops.expand_dims(item_mask(queries), -1)
    products = ops.expand_dims(item_products(context, queries), -1)  # (..., C, Q, 1)
    _, looked_at, gram = _context(context)
    return ops.squeeze(_attended(products, looked_at, gram, mask, **options), axis=-1)


def _attended(
    products: Tensor,
    context_mask: Tensor,
    gram: Tensor,
    query_mask: Tensor,
    *,
    temperature: float = 9.0,
    pooling: str = "mean",
    lse_temperature: float = 6.0,
) -> Tensor:
    """Compute scores (..., q) from cosines (..., C, Q, q) of C attended items with the Q items of q queries.

    `context_mask` is (..., C, 1, 1) bool, `gram` (..., C, C), `query_mask` (Q, q) or (..., Q, 1).
    """
    positive = ops.relu(products)
    norm = ops.sqrt(ops.maximum(ops.sum(ops.square(positive), axis=-2, keepdims=True), _TINY))
    # A mask is not needed here: products and Gram matrix are 0 for padding.
    weights = ops.exp(positive * (temperature / norm))
    inner = ops.sum(weights * products, axis=-3)  # (..., Q, q)
    shape = ops.shape(products)
    flat = ops.reshape(weights, (*shape[:-2], shape[-2] * shape[-1]))
    squares = ops.sum(ops.matmul(gram, flat) * flat, axis=-2)
    squares = ops.reshape(squares, (*shape[:-3], *shape[-2:]))
    relevance = inner / ops.sqrt(ops.maximum(squares, _TINY))
    real = ops.cast(query_mask, "float32")
    count = ops.sum(real, axis=-2)
    if pooling == "mean":
        # Padding has relevance 0.
        return ops.sum(relevance, axis=-2) / ops.maximum(count, 1.0)
    total = ops.sum(ops.exp(lse_temperature * relevance) * real, axis=-2)
    something = ops.logical_and(count > 0, ops.any(context_mask, axis=-3)[..., 0])
    # Empty sets take the logarithm of 1, since the gradient at 0 would be NaN.
    return ops.log(ops.where(something, total, 1.0)) / lse_temperature


def _context(items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    items = float32(items)
    mask = ops.expand_dims(ops.expand_dims(item_mask(items), -1), -1)
    return items, mask, item_products(items, items)


def _query(items: Tensor) -> tuple[Tensor, Tensor]:
    return turned(items), ops.transpose(item_mask(items))
