"""Multi-vector similarities: they compare the regions of an image with the words of a sentence.

Every image is a set of region vectors, every sentence a sequence of word vectors: an embedding is (items, dim), and a
row of zeros is padding. Scores are best or summed inner products (`region_word_scores`), or stacked cross attention
(`cross_attention_scores`): scores by the regions that words attend to, or the words that regions attend to.

All scores of many images and sentences are computed block by block, each one matrix product and a reduction of it, so
that memory never grows with regions x words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras
import numpy as np
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Range
from vsemb.similarities import Similarity

Tensor = Any
# Up to so many inner products, such as those of a training batch, are one block: 64 MB.
_FEW = 1 << 24
# Regions and words of a block: enough for a matrix product to run at full speed.
_ROWS, _COLUMNS = 2048, 2048
# Squared norms below are of vectors that say nothing.
_TINY = 1e-12


def _up_to(high: int) -> Range:
    """Return the range of the numbers above 0 up to `high`."""
    return Range(f"a number above 0, at most {high}", lambda value: 0 < value <= high)


@dataclass(frozen=True)
class MultiVectorSimilarity(Similarity):
    """Base of the multi-vector similarities: images are (rows, M, dim), sentences (rows, T, dim).

    What the base says of shapes holds with two axes in the place of `dim`.
    """

    accepts: ClassVar[str] = "multi_vector"
    geometry: ClassVar[str] = "sets of vectors; a row of zeros is padding"

    def word_region_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score every word of a text with every region of the image in its place.

        Args:
            images: (..., M, dim) normalised regions.
            texts: (..., T, dim) normalised words, of a shape that broadcasts with the images'.

        Returns:
            (..., T, M) float32, 0 for padding; what `vsemb.systems.regions.viterbi.best_chain` takes.
        """
        return item_products(texts, images)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class MaxSim(MultiVectorSimilarity, kind="max-sim"):
    """Sum over the words of a sentence of the best inner product with a region of the image.

        S_kl = sum over t of max over i of v_i . s_t

    Karpathy and Fei-Fei 2015, equation 8. Vectors are compared as they are: their norms say how much a word or a
    region counts (section 6.1). Longer sentences have larger scores.

    Example: the words' best regions give 1 and 2.

    >>> regions, words = ops.array([[[1.0, 0.0], [0.0, 2.0]]]), ops.array([[[1.0, 0.0], [-3.0, 1.0]]])
    >>> float(MaxSim().scores(regions, words)[0, 0])
    3.0
    >>> MaxSim().word_region_scores(regions, words).numpy().tolist()
    [[[1.0, 0.0], [-3.0, 2.0]]]
    """

    #: How the regions of a word are reduced, see `region_word_scores`.
    reduce: ClassVar[str] = "max"

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.cast(embeddings, "float32")

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_scores(images, texts, self.reduce)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_pair_scores(images, texts, self.reduce)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class SumSim(MaxSim, kind="sum-sim"):
    """Sum over the words of a sentence of all positive inner products with regions of the image.

        S_kl = sum over t of sum over i of max(0, v_i . s_t)

    Karpathy and Fei-Fei 2015, equation 7.
    """

    reduce: ClassVar[str] = "sum"


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class LateInteraction(MultiVectorSimilarity, kind="late-interaction"):
    """Mean over the words of a sentence of the best cosine with a region of the image.

        S_kl = mean over t of max over i of cos(v_i, s_t)

    Equation 8 of Karpathy and Fei-Fei 2015 with all vectors at unit length, so that a sentence's length does
    not matter and losses made for cosines fit: ColBERT's late interaction (arXiv:2004.12832, section 3.3),
    with the mean that FILIP takes (arXiv:2111.07783, section 3.1).

    Example: the cosines of the words with their best regions are 1 and 0.6.

    >>> regions, words = ops.array([[[2.0, 0.0]]]), ops.array([[[3.0, 0.0], [3.0, 4.0]]])
    >>> similarity = LateInteraction()
    >>> regions, words = similarity.normalize(regions), similarity.normalize(words)
    >>> round(float(similarity.scores(regions, words)[0, 0]), 3)
    0.8
    """

    unit_length: ClassVar[bool] = True

    def normalize(self, embeddings: Tensor) -> Tensor:
        return l2_normalize(embeddings)

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_scores(images, texts, "max") / _word_counts(texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_pair_scores(images, texts, "max") / _word_counts(texts)


def _word_counts(texts: Tensor) -> Tensor:
    """The number of words of each text, (..., steps, dim) -> (...) float32, at least 1."""
    return ops.maximum(ops.sum(ops.cast(item_mask(texts), "float32"), axis=-1), 1.0)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class CrossAttention(MultiVectorSimilarity, kind="cross-attention"):
    """Stacked cross attention: how well each word fits its attention-weighted regions (Lee et al. 2018).

    Words and regions have unit length. With `attend="regions"` every word attends to the regions, weighted by a
    softmax over their rectified cosines, and the score is the mean cosine of a word and the vector it attends to;
    with `attend="words"` every region attends to the words. Equations:
    `vsemb.systems.regions.similarities.cross_attention_scores`.
    `word_region_scores` are the cosines, before any attention, in both cases.

    Attributes:
        attend: `regions` (text-image in the paper) or `words` (image-text): what is attended to.
        temperature: inverse temperature of the softmax; null for the published one, 9 for regions and 4 for words.
        pooling: over the words, or the regions, that attend: `mean`, or `lse` for log(sum of
            exp(lse_temperature R)) / lse_temperature, where the best count most.
        lse_temperature: published 6.

    Example: the first word finds its region; the second, at right angles to all, scores 0.

    >>> regions, words = ops.array([[[1.0, 0, 0], [0, 1, 0]]]), ops.array([[[1.0, 0, 0], [0, 0, 1]]])
    >>> round(float(CrossAttention().scores(regions, words)[0, 0]), 3)
    0.5
    """

    unit_length: ClassVar[bool] = True

    attend: Literal["regions", "words"] = "regions"
    # exp(30) squared, times the square of a million of items, is still a float32.
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


def item_mask(vectors: Tensor) -> Tensor:
    """Tells items from padding: a row of zeros is no item.

    Args:
        vectors: (..., items, dim) any dtype.

    Returns:
        (..., items) bool.

    Example:

    >>> ops.convert_to_numpy(item_mask([[[0.0, 2.0], [0.0, 0.0]]])).tolist()
    [[True, False]]
    """
    return ops.any(ops.not_equal(vectors, 0), axis=-1)


def region_word_scores(regions: Tensor, words: Tensor, reduce: str = "max") -> Tensor:
    """Score every image k against every sentence l by inner products of regions v_i and words s_t.

    S_kl = sum over t of max over i of v_i . s_t, each word with its best region, be it negative (Karpathy and
    Fei-Fei 2015, equation 8); with `reduce="sum"`, the sum over t and i of max(0, v_i . s_t) (equation 7).

    Args:
        regions: (n, M, dim) float; padded regions are never the best.
        words: (m, T, dim) float; padded words add nothing.
        reduce: `"max"` or `"sum"`, over the regions.

    Returns:
        (n, m) float32. An image without regions and a sentence without words score 0.

    Memory beyond the arguments and the result is a copy of the regions and one block. Where shapes are
    unknown in a graph, everything is one block.

    Example: the words' best regions give 2, 0 and -1; the row of zeros is padding.

    >>> regions, words = ops.array([[[1.0, 0], [2, 1], [0, 0]]]), ops.array([[[1.0, 0], [0, -1], [-1, 0]]])
    >>> float(region_word_scores(regions, words[:, :2])[0, 0])
    2.0
    >>> float(region_word_scores(regions, words)[0, 0])
    1.0
    >>> float(region_word_scores(regions, words, "sum")[0, 0])
    3.0
    """

    def score(regions: Tensor, words: Tensor) -> Tensor:
        products = all_products(regions, words)  # (n, M, T, m)
        return ops.sum(_over_regions(products, 1, reduce), axis=1)

    return in_blocks(score, _padding_as_first_region if reduce == "max" else _float32, turned, regions, words)


def region_word_pair_scores(regions: Tensor, words: Tensor, reduce: str = "max") -> Tensor:
    """Score each image against the sentence in its place, as `region_word_scores` does.

    Args:
        regions: (..., M, dim) float.
        words: (..., T, dim) float, of a shape that broadcasts with the regions'.
        reduce: `"max"` or `"sum"`.

    Returns:
        (...) float32.
    """
    regions = _padding_as_first_region(regions) if reduce == "max" else regions
    return ops.sum(_over_regions(item_products(words, regions), -1, reduce), axis=-1)


def item_products(queries: Tensor, context: Tensor) -> Tensor:
    """Return the inner products of the items of sets that belong together.

    Args:
        queries: (..., T, dim) float.
        context: (..., M, dim) float, of a shape that broadcasts with the queries'.

    Returns:
        (..., T, M) float32, 0 for padding.
    """
    return ops.matmul(_float32(queries), ops.swapaxes(_float32(context), -1, -2))


def _over_regions(products: Tensor, axis: int, reduce: str) -> Tensor:
    if reduce == "sum":
        return ops.sum(ops.relu(products), axis=axis)
    # `initial`, since Keras refuses the maximum of nothing: no images or no sentences.
    return ops.max(products, axis=axis, initial=-float("inf"))


def _float32(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")


def _padding_as_first_region(regions: Tensor) -> Tensor:
    """Put each image's first region in the place of its padding, which so never is the one best region.

    That is cheaper than to mask the products, of which there are many more.
    """
    regions = _float32(regions)
    if regions.shape[-2] == 0:
        # One region of zeros says what no region says.
        regions = ops.zeros((*ops.shape(regions)[:-2], 1, ops.shape(regions)[-1]))
    mask = item_mask(regions)
    first = ops.logical_and(mask, ops.equal(ops.cumsum(ops.cast(mask, "int32"), axis=-1), 1))
    first_region = ops.matmul(ops.expand_dims(ops.cast(first, "float32"), -2), regions)  # (..., 1, dim)
    return ops.where(ops.expand_dims(mask, -1), regions, first_region)


def turned(words: Tensor) -> Tensor:
    """Prepare sets for `all_products`: (m, T, dim) to (dim, T, m) float32, turned once for many products.

    With T before m, sums over T are sums of rows, which padding does not round otherwise.
    """
    return ops.transpose(_float32(words), (2, 1, 0))


def all_products(rows: Tensor, columns: Tensor) -> Tensor:
    """Multiply all items of some sets, (n, M, dim), with those of others, (dim, T, m), to (n, M, T, m)."""
    dim = ops.shape(rows)[-1]
    flat = ops.matmul(ops.reshape(rows, (-1, dim)), ops.reshape(columns, (dim, -1)))
    return ops.reshape(flat, (*ops.shape(rows)[:2], *ops.shape(columns)[1:]))


def in_blocks(
    score: Callable[[Any, Any], Tensor],
    of_regions: Callable[[Tensor], Any],
    of_words: Callable[[Tensor], Any],
    regions: Tensor,
    words: Tensor,
) -> Tensor:
    """Score all images against all sentences, sentences of similar length together, without their padding.

    Args:
        score: from what the next two return to (n, m), for a block of images and one of sentences.
        of_regions: prepares a block of images, once.
        of_words: prepares a block of sentences, once.
        regions: (n, M, dim).
        words: (m, T, dim).

    Returns:
        (n, m).
    """
    (n, count), (m, steps) = np.shape(regions)[:2], np.shape(words)[:2]
    if None in (n, count, m, steps) or n * count * m * steps <= _FEW:
        return score(of_regions(ops.convert_to_tensor(regions)), of_words(ops.convert_to_tensor(words)))
    size = max(1, _ROWS // count)
    images = [of_regions(ops.convert_to_tensor(regions[i : i + size])) for i in range(0, n, size)]
    lengths = _lengths(words)
    order = np.argsort(-lengths, kind="stable")
    columns, start = [], 0
    while start < m:
        longest = max(1, int(lengths[order[start]]))
        rows = order[start : start + max(1, _COLUMNS // longest)]
        chosen = words[rows] if isinstance(words, np.ndarray) else ops.take(words, rows, axis=0)
        texts = of_words(ops.convert_to_tensor(chosen[:, :longest]))
        columns.append(ops.concatenate([score(block, texts) for block in images], axis=0))
        start += len(rows)
    return ops.take(ops.concatenate(columns, axis=1), np.argsort(order), axis=1)


def _lengths(words: Tensor) -> np.ndarray:
    """The steps up to each sentence's last word, (m,) int64; all steps where values are not known yet."""
    m, steps = words.shape[:2]
    if not (isinstance(words, np.ndarray) or hasattr(words, "numpy")):
        return np.full(m, steps)
    masks = [ops.convert_to_numpy(item_mask(words[i : i + 256])) for i in range(0, m, 256)]
    return np.max(np.concatenate(masks) * np.arange(1, steps + 1), axis=1)


def cross_attention_scores(regions: Tensor, words: Tensor, attend: str = "regions", **options: Any) -> Tensor:
    """Score every image against every sentence by stacked cross attention (Lee et al. 2018, section 3.1).

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
        **options: `temperature`, inverse temperature of the softmax, above 0 and at most 30, default 9, published 9 for
            regions and 4 for words; `pooling`, `"mean"` (default) or `"lse"`; `lse_temperature`, above 0 and at most
            80, default and published 6.

    Returns:
        (n, m) float32. An image without regions and a sentence without words score 0.

    Memory is bounded as that of `region_word_scores`, with a few arrays of a
    block's size.

    Example: the word sees nearly only the region that equals it.

    >>> regions, words = ops.array([[[1.0, 0], [0, 1], [0, 0]]]), ops.array([[[1.0, 0]]])
    >>> round(float(cross_attention_scores(regions, words)[0, 0]), 4)
    1.0
    """

    def score(context: Any, queries: Any) -> Tensor:
        (items, mask, gram), (asking, real) = context, queries
        return _attended(all_products(items, asking), mask, gram, real, **options)

    if attend == "regions":
        return in_blocks(score, _context, _query, regions, words)
    # Regions ask and words are looked at: the same with changed places.
    return in_blocks(lambda r, w: ops.transpose(score(w, r)), _query, _context, regions, words)


def cross_attention_pair_scores(regions: Tensor, words: Tensor, attend: str = "regions", **options: Any) -> Tensor:
    """Score each image against the sentence in its place, as `cross_attention_scores` does.

    Args:
        regions: (..., M, dim) float, of unit length or zero.
        words: (..., T, dim) float, of a shape that broadcasts with the regions'.
        attend, **options: as for `cross_attention_scores`.

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
    items = _float32(items)
    mask = ops.expand_dims(ops.expand_dims(item_mask(items), -1), -1)
    return items, mask, item_products(items, items)


def _query(items: Tensor) -> tuple[Tensor, Tensor]:
    return turned(items), ops.transpose(item_mask(items))
