"""Stacked cross attention: scores of sets by what words see of an image, or regions of a sentence."""

from __future__ import annotations

from typing import Any

from keras import ops

from vsemb.errors import invalid_argument
from vsemb.systems.regions.set_scores import all_products, in_blocks, item_mask, item_products, turned

Tensor = Any

ATTENDED = ("regions", "words")
POOLINGS = ("mean", "lse")

# Squared norms below are of vectors that say nothing.
_TINY = 1e-12


def cross_attention_scores(
    regions: Tensor,
    words: Tensor,
    attend: str = "regions",
    *,
    temperature: float = 9.0,
    pooling: str = "mean",
    lse_temperature: float = 6.0,
) -> Tensor:
    """Scores every image against every sentence by stacked cross attention (Lee et al. 2018, section 3.1).

    With `attend="regions"`, every word e_j looks at the regions v_i through their cosines s_ij:

        w_ij = [s_ij]+ / sqrt(sum over j of [s_ij]+ squared)    over the words of the sentence
        a_j  = sum over i of softmax_i(temperature w_ij) v_i     what the word saw
        R_j  = cosine(e_j, a_j)                                  how well that fits it

    and the score is the mean of R over the words, or log(sum of exp(lse_temperature R)) / lse_temperature.
    With `attend="words"`, every region looks at the words in the same way.

    No a_j is ever computed: with the Gram matrix G of the regions, cosine(e_j, a_j) is the weighted sum of
    s_ij over sqrt(w' G w), in which the denominators of the softmax cancel. The authors' code has a leaky
    rectifier of slope 0.1 where their equations and this function have [.]+.

    Args:
        regions: (n, M, dim) float, of unit length or zero.
        words: (m, T, dim) float, of unit length or zero.
        attend: `"regions"` or `"words"`: what is looked at.
        temperature: inverse temperature of the softmax, above 0 and at most 30; published 9 for regions, 4
            for words.
        pooling: `"mean"` or `"lse"`.
        lse_temperature: above 0 and at most 80; published 6.

    Returns:
        (n, m) float32. An image without regions and a sentence without words score 0.

    Raises:
        InvalidArgumentError: for an option that is not allowed.

    Memory is bounded as that of `vsemb.systems.regions.set_scores.region_word_scores`, with a few arrays of a
    block's size.

    Example: the word sees nearly only the region that equals it.

    >>> regions, words = ops.array([[[1.0, 0], [0, 1], [0, 0]]]), ops.array([[[1.0, 0]]])
    >>> round(float(cross_attention_scores(regions, words)[0, 0]), 4)
    1.0
    """
    check_attention(attend, temperature, pooling, lse_temperature)

    def score(context: Any, queries: Any) -> Tensor:
        items, mask, gram = context
        asking, real = queries
        products = all_products(items, asking)
        return _attended(products, mask, gram, real, temperature, pooling, lse_temperature)

    if attend == "regions":
        return in_blocks(score, _context, _query, regions, words)
    # Regions ask and words are looked at: the same with changed places.
    return in_blocks(lambda r, w: ops.transpose(score(w, r)), _query, _context, regions, words)


def cross_attention_pair_scores(
    regions: Tensor,
    words: Tensor,
    attend: str = "regions",
    *,
    temperature: float = 9.0,
    pooling: str = "mean",
    lse_temperature: float = 6.0,
) -> Tensor:
    """Scores each image against the sentence in its place, as `cross_attention_scores` does.

    Args:
        regions: (..., M, dim) float, of unit length or zero.
        words: (..., T, dim) float, of a shape that broadcasts with the regions'.
        attend, temperature, pooling, lse_temperature: as for `cross_attention_scores`.

    Returns:
        (...) float32.
    """
    check_attention(attend, temperature, pooling, lse_temperature)
    context, queries = (regions, words) if attend == "regions" else (words, regions)
    mask = ops.expand_dims(item_mask(queries), -1)
    products = ops.expand_dims(item_products(context, queries), -1)  # (..., C, Q, 1)
    _, looked_at, gram = _context(context)
    return ops.squeeze(_attended(products, looked_at, gram, mask, temperature, pooling, lse_temperature), axis=-1)


def check_attention(attend: str, temperature: float, pooling: str, lse_temperature: float) -> None:
    """Refuses what `cross_attention_scores` cannot compute.

    Raises:
        InvalidArgumentError: for an option that is not allowed.
    """
    if attend not in ATTENDED:
        raise invalid_argument("attend", attend, f"one of {', '.join(ATTENDED)}")
    if pooling not in POOLINGS:
        raise invalid_argument("pooling", pooling, f"one of {', '.join(POOLINGS)}")
    # exp(30) squared, times the square of a million of items, is still a float32.
    if not 0 < temperature <= 30:
        raise invalid_argument("temperature", temperature, "a number above 0, at most 30")
    if not 0 < lse_temperature <= 80:
        raise invalid_argument("lse_temperature", lse_temperature, "a number above 0, at most 80")


def _attended(
    products: Tensor,
    context_mask: Tensor,
    gram: Tensor,
    query_mask: Tensor,
    temperature: float,
    pooling: str,
    lse_temperature: float,
) -> Tensor:
    """From cosines (..., C, Q, q) of C items looked at with the Q items of q queries to scores (..., q).

    `context_mask` is (..., C, 1, 1) bool, `gram` (..., C, C), `query_mask` (Q, q) or (..., Q, 1).
    """
    positive = ops.relu(products)
    norm = ops.sqrt(ops.maximum(ops.sum(ops.square(positive), axis=-2, keepdims=True), _TINY))
    # Padding needs no mask here: its products and its part of the Gram matrix are 0.
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
        # 0 for queries of padding.
        return ops.sum(relevance, axis=-2) / ops.maximum(count, 1.0)
    total = ops.sum(ops.exp(lse_temperature * relevance) * real, axis=-2)
    something = ops.logical_and(count > 0, ops.any(context_mask, axis=-3)[..., 0])
    # Not the logarithm of 0 where there is nothing, whose gradient would be NaN.
    return ops.log(ops.where(something, total, 1.0)) / lse_temperature


def _context(items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    items = ops.cast(items, "float32")
    mask = ops.expand_dims(ops.expand_dims(item_mask(items), -1), -1)
    return items, mask, item_products(items, items)


def _query(items: Tensor) -> tuple[Tensor, Tensor]:
    return turned(items), ops.transpose(item_mask(items))
