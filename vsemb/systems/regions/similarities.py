"""Multi-vector similarities: they compare the regions of an image with the words of a sentence.

An embedding is (items, dim); a row of zeros is padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Range
from vsemb.similarities import Similarity
from vsemb.systems.regions.set_scores import (
    cross_attention_pair_scores,
    cross_attention_scores,
    item_mask,
    item_products,
    region_word_pair_scores,
    region_word_scores,
)

Tensor = Any


def _up_to(high: int) -> Range:
    """Returns the range of the numbers above 0 up to `high`."""
    return Range(f"a number above 0, at most {high}", lambda value: 0 < value <= high)


@dataclass(frozen=True)
class MultiVectorSimilarity(Similarity):
    """Base of the multi-vector similarities: images are (rows, M, dim), sentences (rows, T, dim).

    What the base says of shapes holds with two axes in the place of `dim`.
    """

    accepts: ClassVar[str] = "multi_vector"
    geometry: ClassVar[str] = "sets of vectors; a row of zeros is padding"

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
    `vsemb.systems.regions.set_scores.cross_attention_scores`.
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
