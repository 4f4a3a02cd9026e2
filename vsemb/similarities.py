"""Similarities: how an image embedding and a text embedding are compared.

Each owns the geometry of its embeddings (`normalize`) and scores blocks of them (`scores`). Higher
is always better. Those of sets compare the regions of an image with the words of a sentence; an embedding
then is (items, dim), where a row of zeros is padding and no item.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.errors import unknown_name
from vsemb.ops.attention import check_attention, cross_attention_pair_scores, cross_attention_scores
from vsemb.ops.geometry import l2_normalize
from vsemb.ops.order import order_violation, order_violation_matrix
from vsemb.ops.sets import (
    check_reduction,
    item_mask,
    item_products,
    region_word_pair_scores,
    region_word_scores,
)

Tensor = Any


class Similarity:
    """Base of the similarities: stateless, described wholly by `get_config`."""

    #: Whether scores are linear in the embedding of the text, and so the mean score of several texts the
    #: score of their mean (Reed et al. 2016, equation 8).
    linear: ClassVar[bool] = False

    #: Whether an embedding is a set of vectors, (items, dim), where the others have one vector, (dim,).
    sets: ClassVar[bool] = False

    def normalize(self, embeddings: Tensor) -> Tensor:
        """Brings encoder outputs into this similarity's geometry.

        Args:
            embeddings: (rows, dim) any float dtype.

        Returns:
            (rows, dim) float32.
        """
        raise NotImplementedError

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores every image against every text.

        Args:
            images: (images, dim) normalised embeddings.
            texts: (texts, dim) normalised embeddings.

        Returns:
            (images, texts) float32.
        """
        raise NotImplementedError

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores each image against the text in its place.

        Args:
            images: (..., dim) normalised embeddings.
            texts: (..., dim) normalised embeddings, of a shape that broadcasts with the images'.

        Returns:
            (...) float32.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Similarity:
        """Rebuilds the similarity from `get_config`'s result."""
        return cls(**config)


@keras.saving.register_keras_serializable("vsemb")
class Dot(Similarity):
    """Inner product of raw embeddings (Reed et al. 2016, compatibility F; imgcap).

    Example:

    >>> float(Dot().scores(ops.ones((1, 2)), ops.ones((1, 2)))[0, 0])
    2.0
    """

    linear: ClassVar[bool] = True

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.cast(embeddings, "float32")

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return ops.matmul(images, ops.transpose(texts))

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return ops.sum(images * texts, axis=-1)


@keras.saving.register_keras_serializable("vsemb")
class Cosine(Dot):
    """Cosine: both sides at unit length, then the inner product (Kiros et al. 2014, section 2.2)."""

    def normalize(self, embeddings: Tensor) -> Tensor:
        return l2_normalize(embeddings)


@keras.saving.register_keras_serializable("vsemb")
class OrderViolation(Similarity):
    """Minus the order violation: a text scores best where it lies above the image.

    S(c, i) = -E(f(i), f(c)), E(x, y) = ||max(0, y - x)||² (Vendrov et al. 2016, section 4 and equation
    2). Embeddings have unit length and no negative entry, so the origin is the top of the order, and a
    text above an image has no coordinate larger than the image's.

    Example: the text of the second column asks for more of the first coordinate than the image has.

    >>> OrderViolation().scores(ops.array([[0.6, 0.8]]), ops.array([[0.6, 0.8], [1.0, 0.0]])).numpy().round(2)
    array([[-0.  , -0.16]], dtype=float32)
    """

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.abs(l2_normalize(embeddings))

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation_matrix(images, texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation(images, texts)


@keras.saving.register_keras_serializable("vsemb")
class ReversedOrderViolation(OrderViolation):
    """Images above texts: the ablation of Vendrov et al. 2016, table 2."""

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -ops.transpose(order_violation_matrix(texts, images))

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation(texts, images)


class SetSimilarity(Similarity):
    """Base of the similarities of sets: images are (rows, M, dim), sentences (rows, T, dim).

    What the base says of shapes holds with two axes in the place of `dim`.
    """

    sets: ClassVar[bool] = True

    def word_region_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores every word of a text with every region of the image in its place.

        Args:
            images: (..., M, dim) normalised regions.
            texts: (..., T, dim) normalised words, of a shape that broadcasts with the images'.

        Returns:
            (..., T, M) float32, 0 for padding; what `vsemb.ops.viterbi.best_chain` takes.
        """
        return item_products(texts, images)


@keras.saving.register_keras_serializable("vsemb")
class RegionWord(SetSimilarity):
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
class LateInteraction(SetSimilarity):
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
class CrossAttention(SetSimilarity):
    """Stacked cross attention: how well each word fits what it sees of the image (Lee et al. 2018).

    Words and regions have unit length. With `attend="regions"` every word looks at the regions, weighted by a
    softmax over their rectified cosines, and the score is the mean cosine of a word and what it saw; with
    `attend="words"` every region looks at the words. Equations: `vsemb.ops.attention.cross_attention_scores`.
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


#: What makes each similarity, by its name in recipes and commands.
SIMILARITIES: dict[str, Callable[[], Similarity]] = {
    "dot": Dot,
    "cosine": Cosine,
    "order": OrderViolation,
    "order-reversed": ReversedOrderViolation,
    "region-word": RegionWord,
    "region-word-all": partial(RegionWord, reduce="sum"),
    "late-interaction": LateInteraction,
    "cross-attention": CrossAttention,
    "cross-attention-image": partial(CrossAttention, attend="words"),
}


def get(identifier: str | Similarity) -> Similarity:
    """Returns a similarity by name; an instance passes through.

    Raises:
        InvalidArgumentError: for a name that is not in `SIMILARITIES`.
    """
    if isinstance(identifier, Similarity):
        return identifier
    if identifier not in SIMILARITIES:
        raise unknown_name("similarity", identifier, SIMILARITIES)
    return SIMILARITIES[identifier]()
