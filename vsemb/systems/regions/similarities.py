"""Multi-vector similarities of the regions of an image and the words of a sentence.

An image is a set of region vectors, and a sentence a sequence of word vectors. An embedding is (items, dim), and a row
of zeros is padding. Scores are best or summed inner products (`region_word_scores`);
`vsemb.systems.regions.cross_attention` has stacked cross attention.

Scores of many images and sentences are computed in blocks, each with one matrix product and a reduction. So memory does
not grow with regions x words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.similarities import Similarity

Tensor = Any
# Maximum inner products of a single block, such as a training batch: 64 MB.
_FEW = 1 << 24
# Regions and words per block: enough for matrix products at full speed.
_ROWS, _COLUMNS = 2048, 2048


@dataclass(frozen=True)
class MultiVectorSimilarity(Similarity):
    """Base of the multi-vector similarities: images are (rows, M, dim), sentences (rows, T, dim).

    In the shapes of `Similarity`, two axes replace `dim`.
    """

    accepts: ClassVar[str] = "multi_vector"
    geometry: ClassVar[str] = "sets of vectors; a row of zeros is padding"

    def word_region_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Compute the scores of every word of a text with every region of the paired image.

        Args:
            images: (..., M, dim) normalized regions.
            texts: (..., T, dim) normalized words, in a shape that broadcasts with `images`.

        Returns:
            (..., T, M) float32, 0 for padding: the unaries of `vsemb.systems.regions.viterbi.best_chain`.
        """
        return item_products(texts, images)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class MaxSim(MultiVectorSimilarity, kind="max-sim"):
    """Sum over the words of a sentence of the best inner product with a region of the image.

        S_kl = sum over t of max over i of v_i . s_t

    Karpathy and Fei-Fei 2015, equation 8. Vectors are not normalized: their norms are the weights of words and regions
    (section 6.1). Longer sentences have larger scores.

    Example: the words' best regions give 1 and 2.

    >>> regions, words = ops.array([[[1.0, 0.0], [0.0, 2.0]]]), ops.array([[[1.0, 0.0], [-3.0, 1.0]]])
    >>> float(MaxSim().scores(regions, words)[0, 0])
    3.0
    >>> MaxSim().word_region_scores(regions, words).numpy().tolist()
    [[[1.0, 0.0], [-3.0, 2.0]]]
    """

    #: Reduction over the regions of a word, see `region_word_scores`.
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

    Equation 8 of Karpathy and Fei-Fei 2015 with unit vectors and a mean. The score does not depend on the sentence's
    length, and suits losses for cosines. This is ColBERT's late interaction (arXiv:2004.12832, section 3.3) with the
    mean of FILIP (arXiv:2111.07783, section 3.1).

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
        return region_word_scores(images, texts, "max") / _item_counts(texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_pair_scores(images, texts, "max") / _item_counts(texts)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class MutualLateInteraction(LateInteraction, kind="mutual-late-interaction"):
    """Mean of two late interactions: of words with their best regions, and of regions with their best words.

        S_kl = 1/2 (mean over t of max over i of cos(v_i, s_t) + mean over i of max over t of cos(v_i, s_t))

    FILIP (Yao et al. 2021, arXiv:2111.07783, equations 4 and 5) has the second half for images as queries, and the
    first for texts. Here one score serves both.

    Example: the words' best cosines are 1 and 0.6, the region's best is 1.

    >>> regions, words = ops.array([[[1.0, 0.0]]]), ops.array([[[1.0, 0.0], [0.6, 0.8]]])
    >>> round(float(MutualLateInteraction().scores(regions, words)[0, 0]), 3)
    0.9
    """

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        of_regions = region_word_scores(texts, images, "max") / _item_counts(images)
        return (super().scores(images, texts) + ops.transpose(of_regions)) / 2

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        of_regions = region_word_pair_scores(texts, images, "max") / _item_counts(images)
        return (super().pair_scores(images, texts) + of_regions) / 2


def _item_counts(sets: Tensor) -> Tensor:
    """Return the number of vectors of each set, (..., items, dim) -> (...) float32, at least 1."""
    return ops.maximum(ops.sum(ops.cast(item_mask(sets), "float32"), axis=-1), 1.0)


def item_mask(vectors: Tensor) -> Tensor:
    """Return a mask that is false for padding, which is a row of zeros.

    Args:
        vectors: (..., items, dim) of any dtype.

    Returns:
        (..., items) bool.

    Example:

    >>> ops.convert_to_numpy(item_mask([[[0.0, 2.0], [0.0, 0.0]]])).tolist()
    [[True, False]]
    """
    return ops.any(ops.not_equal(vectors, 0), axis=-1)


def region_word_scores(regions: Tensor, words: Tensor, reduce: str = "max") -> Tensor:
    """Compute the scores of every image k with every sentence l from inner products of regions v_i and words s_t.

    With `reduce="max"`, S_kl is the sum over t of max over i of v_i . s_t, also for negative products (Karpathy and
    Fei-Fei 2015, equation 8). With `reduce="sum"`, S_kl is the sum over t and i of max(0, v_i . s_t) (equation 7).

    Args:
        regions: (n, M, dim) float; padding is never the best region.
        words: (m, T, dim) float; padding adds 0.
        reduce: reduction over the regions, `"max"` or `"sum"`; default `"max"`.

    Returns:
        (n, m) float32; 0 for images without regions and sentences without words.

    Additional memory is a copy of the regions and one block. With unknown shapes in a graph, the computation is one
    block.

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

    of_regions = _padding_as_first_region if reduce == "max" else float32
    return in_blocks(score, of_regions, turned, regions, words)


def region_word_pair_scores(regions: Tensor, words: Tensor, reduce: str = "max") -> Tensor:
    """Compute the scores of pairs of image and sentence, see `region_word_scores`.

    Args:
        regions: (..., M, dim) float.
        words: (..., T, dim) float, in a shape that broadcasts with `regions`.
        reduce: reduction over the regions, `"max"` or `"sum"`.

    Returns:
        (...) float32.
    """
    if reduce == "max":
        regions = _padding_as_first_region(regions)
    return ops.sum(_over_regions(item_products(words, regions), -1, reduce), axis=-1)


def item_products(queries: Tensor, context: Tensor) -> Tensor:
    """Compute the inner products of all items of paired sets.

    Args:
        queries: (..., T, dim) float.
        context: (..., M, dim) float, in a shape that broadcasts with `queries`.

    Returns:
        (..., T, M) float32, 0 for padding.
    """
    return ops.matmul(float32(queries), ops.swapaxes(float32(context), -1, -2))


def _over_regions(products: Tensor, axis: int, reduce: str) -> Tensor:
    if reduce == "sum":
        return ops.sum(ops.relu(products), axis=axis)
    # `initial` allows empty sets of images or sentences, whose maximum Keras refuses.
    return ops.max(products, axis=axis, initial=-float("inf"))


def float32(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")


def _padding_as_first_region(regions: Tensor) -> Tensor:
    """Replace padding by each image's first region, so that padding never changes the maximum.

    This is cheaper than a mask of the products, which are many more.
    """
    regions = float32(regions)
    if regions.shape[-2] == 0:
        # One region of zeros gives the same scores as no regions.
        regions = ops.zeros((*ops.shape(regions)[:-2], 1, ops.shape(regions)[-1]))
    mask = item_mask(regions)
    first = ops.logical_and(mask, ops.equal(ops.cumsum(ops.cast(mask, "int32"), axis=-1), 1))
    first_region = ops.matmul(ops.expand_dims(ops.cast(first, "float32"), -2), regions)  # (..., 1, dim)
    return ops.where(ops.expand_dims(mask, -1), regions, first_region)


def turned(words: Tensor) -> Tensor:
    """Transpose sets for `all_products`, once for many products: (m, T, dim) to (dim, T, m) float32.

    With T before m, sums over T are sums of rows, so padding does not change their rounding.
    """
    return ops.transpose(float32(words), (2, 1, 0))


def all_products(rows: Tensor, columns: Tensor) -> Tensor:
    """Compute the inner products of all items of sets.

    Args:
        rows: (n, M, dim) float, n sets of M items.
        columns: (dim, T, m) float, m sets of T items.

    Returns:
        (n, M, T, m) float.
    """
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
    """Compute the scores of all images with all sentences in blocks; a block has sentences of similar length.

    Args:
        score: computes scores (n, m) from the results of `of_regions` and `of_words` for a block of images and a block
            of sentences.
        of_regions: prepares a block of images, once.
        of_words: prepares a block of sentences, once.
        regions: (n, M, dim).
        words: (m, T, dim).

    Returns:
        (n, m) scores.
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
    """Return the steps up to each sentence's last word, (m,) int64; all steps if values are unknown in a graph."""
    m, steps = words.shape[:2]
    if not (isinstance(words, np.ndarray) or hasattr(words, "numpy")):
        return np.full(m, steps)
    masks = [ops.convert_to_numpy(item_mask(words[i : i + 256])) for i in range(0, m, 256)]
    return np.max(np.concatenate(masks) * np.arange(1, steps + 1), axis=1)
