"""Similarities of image and text embeddings.

A similarity normalizes embeddings (`normalize`) and computes scores of blocks of them (`scores`). Higher is better.
Similarities of sets of vectors are in `vsemb.systems.regions.similarities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.errors import DataError
from vsemb.ops.geometry import l2_normalize
from vsemb.ops.order import order_violation, order_violation_matrix
from vsemb.parts import Part, Size, fields_of
from vsemb.registry import find_part

Tensor = Any

# Rows that are normalized at a time, so that large arrays need no copy.
_ROWS = 1 << 13


@dataclass(frozen=True)
class Similarity(Part, family="similarity"):
    """Similarity of image and text embeddings; base of the family `similarity`."""

    #: Whether scores are linear in the embedding of the text, and so the mean score of several texts the
    #: score of their mean (Reed et al. 2016, equation 8).
    linear: ClassVar[bool] = False
    #: Whether scores are the inner products of normalized embeddings, so that `scores` need not be called.
    inner_product: ClassVar[bool] = False
    #: Whether items with large inner products are good candidates for exact scores. Without this and without
    #: `inner_product`, all items are scored.
    candidates_by_inner_product: ClassVar[bool] = False
    #: Whether embeddings have length 1.
    unit_length: ClassVar[bool] = False
    #: Whether the space has composition and abstraction, see `vsemb.searching.arithmetic`.
    composes: ClassVar[bool] = False

    #: Score of an item with itself, the highest there is; None where it depends on the item.
    self_score: ClassVar[float | None] = None

    #: What all embeddings have in common, as a phrase.
    geometry: ClassVar[str] = "that of the similarity"

    #: What it compares: one `vector`, (dim,), or `multi_vector`, (items, dim), per image and text.
    accepts: ClassVar[str] = "vector"

    @property
    def multi_vector(self) -> bool:
        """Whether an embedding is a set of vectors."""
        return self.accepts == "multi_vector"

    @property
    def compares_directions(self) -> bool:
        """Whether scores are inner products of embeddings of unit length."""
        return self.inner_product and self.unit_length

    @property
    def ensemble_size(self) -> int:
        """Number of members whose embeddings stand one behind the other, see `split`."""
        return 1

    def normalize(self, embeddings: Tensor) -> Tensor:
        """Normalize encoder outputs for this similarity, for example to unit length.

        Args:
            embeddings: (rows, dim) any float dtype.

        Returns:
            (rows, dim) float32.
        """
        raise NotImplementedError

    def normalized_array(self, embeddings: np.ndarray) -> np.ndarray:
        """Normalize an array of embeddings; return the array itself if it is already normalized.

        Args:
            embeddings: (rows, dim) float.

        Returns:
            (rows, dim), the array itself if no entry differs by more than 0.001.

        Example:

        >>> Cosine().normalized_array(np.array([[3.0, 4.0]])).round(3).tolist()
        [[0.6000000238418579, 0.800000011920929]]
        """
        parts = range(0, len(embeddings), _ROWS)

        def normalized(start: int) -> np.ndarray:
            return ops.convert_to_numpy(self.normalize(embeddings[start : start + _ROWS]))

        # Normalizing twice changes last bits, and with them ties.
        if all(np.allclose(embeddings[each : each + _ROWS], normalized(each), rtol=0, atol=1e-3) for each in parts):
            return embeddings
        return np.concatenate([normalized(each) for each in parts])

    def split(self, embeddings: Tensor) -> list[Tensor]:
        """Return the embeddings by each member of an ensemble, whose losses are averaged; most have one member.

        Args:
            embeddings: (rows, dim) normalized embeddings.
        """
        return [embeddings]

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score every image against every text.

        Args:
            images: (images, dim) normalized embeddings.
            texts: (texts, dim) normalized embeddings.

        Returns:
            (images, texts) float32.
        """
        raise NotImplementedError

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score each image against the text at the same position.

        Args:
            images: (..., dim) normalized embeddings.
            texts: (..., dim) normalized embeddings; the shape must broadcast with `images`.

        Returns:
            (...) float32.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in fields_of(type(self))}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Similarity:
        """Rebuild the similarity from the result of `get_config`."""
        return cls(**config)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class Dot(Similarity, kind="dot"):
    """Inner product of raw embeddings (Reed et al. 2016, compatibility F; imgcap).

    A subclass that overrides `scores` and `pair_scores` must set `inner_product` to False; otherwise, search and
    evaluation do not call them. It must also set `linear` and `candidates_by_inner_product` to False if they no longer
    hold.

    Example:

    >>> float(Dot().scores(ops.ones((1, 2)), ops.ones((1, 2)))[0, 0])
    2.0
    """

    linear: ClassVar[bool] = True
    inner_product: ClassVar[bool] = True
    candidates_by_inner_product: ClassVar[bool] = True
    geometry: ClassVar[str] = "raw"

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.cast(embeddings, "float32")

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return ops.matmul(images, ops.transpose(texts))

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return ops.sum(images * texts, axis=-1)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class Cosine(Dot, kind="cosine"):
    """Cosine similarity: the inner product of embeddings of unit length (Kiros et al. 2014, section 2.2)."""

    unit_length: ClassVar[bool] = True
    self_score: ClassVar[float | None] = 1.0

    geometry: ClassVar[str] = "unit length"

    def normalize(self, embeddings: Tensor) -> Tensor:
        return l2_normalize(embeddings)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class MeanCosine(Cosine, kind="mean-cosine"):
    """Mean of the cosine similarities of an ensemble, whose embeddings stand one behind the other.

    Each member's embedding is scaled to length 1 / sqrt(members), so the whole has unit length. Each member has a loss
    of its own: no member makes up for another in training.

    Attributes:
        members: number of members; the embedding's size is a multiple of it.

    Example: the members' cosines are 1 and 0.

    >>> similarity = MeanCosine(2)
    >>> images, texts = (similarity.normalize(ops.array([row])) for row in ([1.0, 0, 5, 0], [3.0, 0, 0, 2]))
    >>> round(float(similarity.scores(images, texts)[0, 0]), 4)
    0.5
    """

    members: Size = 2

    @property
    def ensemble_size(self) -> int:
        return self.members

    def normalize(self, embeddings: Tensor) -> Tensor:
        shape = ops.shape(embeddings)
        split = l2_normalize(ops.reshape(embeddings, (*shape[:-1], self.members, embeddings.shape[-1] // self.members)))
        return ops.reshape(split / self.members**0.5, shape)

    def split(self, embeddings: Tensor) -> list[Tensor]:
        return [part * self.members**0.5 for part in ops.split(embeddings, self.members, axis=-1)]


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class OrderViolation(Similarity, kind="order"):
    """Negative order violation: a text scores highest if it is above the image in the order.

    S(c, i) = -E(f(i), f(c)), E(x, y) = ||max(0, y - x)||² (Vendrov et al. 2016, section 4 and equation
    2). Embeddings have unit length and no negative entries. The origin is the top of the order, and a text is above an
    image if none of its coordinates is larger than the image's.

    Example: the first coordinate of the second text is larger than the image's, so the order is violated.

    >>> OrderViolation().scores(ops.array([[0.6, 0.8]]), ops.array([[0.6, 0.8], [1.0, 0.0]])).numpy().round(2)
    array([[-0.  , -0.16]], dtype=float32)
    """

    candidates_by_inner_product: ClassVar[bool] = True
    unit_length: ClassVar[bool] = True
    self_score: ClassVar[float | None] = 0.0
    composes: ClassVar[bool] = True

    geometry: ClassVar[str] = "unit length, no negative entry"

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.abs(l2_normalize(embeddings))

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation_matrix(images, texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation(images, texts)


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class ReversedOrderViolation(OrderViolation, kind="order-reversed"):
    """Negative order violation with images above texts: the ablation of Vendrov et al. 2016, table 2."""

    composes: ClassVar[bool] = False

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -ops.transpose(order_violation_matrix(texts, images))

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -order_violation(texts, images)


def described(told: Any) -> Similarity | None:
    """Return the similarity of a model's description.

    Args:
        told: the JSON value; None if the model has no description.

    Returns:
        The similarity; None without a description, and for a kind that is not installed here.

    Example:

    >>> described({"kind": "cosine"})
    Cosine()
    """
    try:
        return Similarity.from_json(told)
    except DataError:
        return None


def get(identifier: str | Similarity) -> Similarity:
    """Return a similarity by its kind, with default fields; an instance is returned unchanged.

    Raises:
        InvalidArgumentError: for an unknown kind.

    Example:

    >>> get("cosine")
    Cosine()
    """
    if isinstance(identifier, Similarity):
        return identifier
    return find_part("similarity", identifier, "similarity")()
