"""Similarities of sets: they compare the regions of an image with the words of a sentence.

An embedding is (items, dim), where a row of zeros is padding and no item.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.similarities import Similarity
from vsemb.systems.regions.attention import (
    check_attention,
    cross_attention_pair_scores,
    cross_attention_scores,
)
from vsemb.systems.regions.set_scores import (
    check_reduction,
    item_mask,
    item_products,
    region_word_pair_scores,
    region_word_scores,
)

Tensor = Any


class MultiVectorSimilarity(Similarity):
    """Base of the similarities of sets: images are (rows, M, dim), sentences (rows, T, dim).

    What the base says of shapes holds with two axes in the place of `dim`.
    """

    multi_vector: ClassVar[bool] = True

    def word_region_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores every word of a text with every region of the image in its place.

        Args:
            images: (..., M, dim) normalised regions.
            texts: (..., T, dim) normalised words, of a shape that broadcasts with the images'.

        Returns:
            (..., T, M) float32, 0 for padding; what `vsemb.systems.regions.viterbi.best_chain` takes.
        """
        return item_products(texts, images)


@keras.saving.register_keras_serializable("vsemb")
class RegionWord(MultiVectorSimilarity):
    """Sum over the words of a sentence of the best inner product with a region of the image.

        S_kl = sum over t of max over i of v_i . s_t            (reduce="max")
        S_kl = sum over t of sum over i of max(0, v_i . s_t)    (reduce="sum")

    Karpathy and Fei-Fei 2015, equations 8 and 7. Vectors are compared as they are: their lengths say how much
    a word or a region counts (section 6.1). Longer sentences have larger scores.

    Args:
        reduce: `"max"`, each word with its best region, or `"sum"`, with all that it goes with.

    Raises:
        InvalidArgumentError: for another `reduce`.

    Example: the words' best regions give 1 and 2.

    >>> regions, words = ops.array([[[1.0, 0.0], [0.0, 2.0]]]), ops.array([[[1.0, 0.0], [-3.0, 1.0]]])
    >>> float(RegionWord().scores(regions, words)[0, 0])
    3.0
    >>> RegionWord().word_region_scores(regions, words).numpy().tolist()
    [[[1.0, 0.0], [-3.0, 2.0]]]
    """

    def __init__(self, reduce: str = "max") -> None:
        check_reduction(reduce)
        self.reduce = reduce

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.cast(embeddings, "float32")

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_scores(images, texts, self.reduce)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return region_word_pair_scores(images, texts, self.reduce)

    def get_config(self) -> dict[str, Any]:
        return {"reduce": self.reduce}


@keras.saving.register_keras_serializable("vsemb")
class LateInteraction(MultiVectorSimilarity):
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
class CrossAttention(MultiVectorSimilarity):
    """Stacked cross attention: how well each word fits what it sees of the image (Lee et al. 2018).

    Words and regions have unit length. With `attend="regions"` every word looks at the regions, weighted by a
    softmax over their rectified cosines, and the score is the mean cosine of a word and what it saw; with
    `attend="words"` every region looks at the words. Equations:
    `vsemb.systems.regions.attention.cross_attention_scores`.
    `word_region_scores` are the cosines, before any attention, in both cases.

    Args:
        attend: `"regions"` (text-image in the paper) or `"words"` (image-text).
        temperature: inverse temperature of the softmax; None for the published one, 9 for regions and 4 for
            words.
        pooling: `"mean"` over the words, or the regions, that look, or `"lse"`: log(sum of
            exp(lse_temperature R)) / lse_temperature, where the best count most.
        lse_temperature: published 6.

    Raises:
        InvalidArgumentError: for an option that is not allowed.

    Example: the first word finds its region; the second, at right angles to all, scores 0.

    >>> regions, words = ops.array([[[1.0, 0, 0], [0, 1, 0]]]), ops.array([[[1.0, 0, 0], [0, 0, 1]]])
    >>> round(float(CrossAttention().scores(regions, words)[0, 0]), 3)
    0.5
    """

    def __init__(
        self,
        attend: str = "regions",
        temperature: float | None = None,
        pooling: str = "mean",
        lse_temperature: float = 6.0,
    ) -> None:
        if temperature is None:
            temperature = 9.0 if attend == "regions" else 4.0
        check_attention(attend, temperature, pooling, lse_temperature)
        self.attend = attend
        self.temperature = temperature
        self.pooling = pooling
        self.lse_temperature = lse_temperature

    def normalize(self, embeddings: Tensor) -> Tensor:
        return l2_normalize(embeddings)

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return cross_attention_scores(images, texts, **self.get_config())

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return cross_attention_pair_scores(images, texts, **self.get_config())

    def get_config(self) -> dict[str, Any]:
        return {
            "attend": self.attend,
            "temperature": self.temperature,
            "pooling": self.pooling,
            "lse_temperature": self.lse_temperature,
        }
