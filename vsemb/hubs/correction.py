"""Correct embeddings for hubs: items that are near to many queries, and so rank too high for most of them."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument
from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Count, Size

Tensor = Any
Side = Literal["image", "text"]

# The coordinate that all queries have in common. Unit length limits an item's own coordinate.
_COMMON, _LARGEST = 0.3, 0.7


@keras.saving.register_keras_serializable("vsemb")
class HubCorrection(Configured, keras.layers.Layer):
    """Append two coordinates to embeddings, by which hubs have lower scores; the length stays 1.

    The score of an image and a text becomes about 0.91 (v . t - r(v) / 2 - r(t) / 2) plus a constant. Here r is the
    mean cosine of an item with its nearest items in a bank of training items of the other side. This is the correction
    of Conneau et al. 2018 (arXiv:1710.04087, section 2.3) with a bank of queries, as in Bogolin et al. 2022
    (arXiv:2112.12777). It needs no other query, so each item is embedded by itself.

    Until `fill` is called, all corrections are 0. The bank is a set of weights, which are not trained.

    Args:
        dim: size of an embedding.
        members: number of members of an ensemble, each with dim / members coordinates and its own correction.
        size: items of the bank, for each side.
        neighbours: number of nearest items.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        embeddings: (n, dim) float32 of unit length, whose members have the same length; zeros stay zeros.
        side: `image` or `text`.

    Returns:
        (n, dim + 2 * members) float32.

    Raises:
        InvalidArgumentError: if `dim` is not a multiple of `members`, or `size` is less than `neighbours`.

    Example: the first text is near to the images of the bank, and loses a part of its lead (1.0 and 0.6 before).

    >>> layer = HubCorrection(2, size=1, neighbours=1)
    >>> layer.fill(np.array([[1.0, 0.0]]), np.array([[0.8, 0.6]]))
    >>> given = {"image": [[1.0, 0.0]], "text": [[1.0, 0.0], [0.6, 0.8]]}
    >>> image, texts = (layer(np.array(rows), side=side) for side, rows in given.items())
    >>> np.matmul(image, np.transpose(texts)).astype(float).round(2).tolist()
    [[0.77, 0.61]]
    """

    def __init__(
        self, dim: Size, *, members: Count = 1, size: Count = 2000, neighbours: Count = 20, **kwargs: Any
    ) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.keep_arguments(locals())
        if dim % members:
            raise invalid_argument("dim", dim, f"a multiple of members={members}")
        if neighbours > size:
            raise invalid_argument("neighbours", neighbours, f"an integer from 1 to {size}, the size of the bank")
        shape = members, size, dim // members
        self.banks = {side: self._weight(f"{side}_bank", shape) for side in ("image", "text")}
        # The usual r of a side, so that corrections are around 0.
        self.usual = {side: self._weight(f"{side}_usual", (members,)) for side in ("image", "text")}
        self.built = True

    def _weight(self, name: str, shape: tuple[int, ...]) -> keras.Variable:
        return self.add_weight(name=name, shape=shape, initializer="zeros", trainable=False)

    def call(self, embeddings: Tensor, side: Side) -> Tensor:
        members = self._members(embeddings)
        nearness = self._nearness(members, side) - self.usual[side]  # (n, members)
        own = (1 - _COMMON**2) / (2 * _COMMON) * -nearness
        own = ops.clip(own, -_LARGEST, _LARGEST)
        common = ops.full_like(own, _COMMON)
        pair = (own, common) if side == "image" else (common, own)
        scaled = members * ops.sqrt(1 - own**2 - common**2)[..., None]
        known = ops.cast(ops.any(members != 0, axis=-1, keepdims=True), "float32")
        extended = ops.concatenate([scaled, ops.stack(pair, axis=-1) * known], axis=-1)
        return ops.reshape(extended / self.members**0.5, (-1, self.dim + 2 * self.members))

    def compute_output_shape(self, embeddings_shape: Any) -> tuple[Any, ...]:
        return (*embeddings_shape[:-1], self.dim + 2 * self.members)

    def fill(self, images: np.ndarray, texts: np.ndarray) -> None:
        """Replace the bank.

        Args:
            images: (size, dim) embeddings of training images, without the correction or with it.
            texts: (size, dim) embeddings of training texts.

        Raises:
            InvalidArgumentError: for another number of rows.
        """
        for side, rows in (("image", images), ("text", texts)):
            if len(rows) != self.size:
                raise invalid_argument(side, len(rows), f"{self.size} rows, the size of the bank")
            width = rows.shape[-1] // self.members
            members = self._members(rows, width)[..., : self.dim // self.members]
            self.banks[side].assign(ops.transpose(l2_normalize(members), (1, 0, 2)))
        for side, usual in self.usual.items():
            members = ops.transpose(self.banks[side], (1, 0, 2))
            usual.assign(ops.mean(self._nearness(members, side), axis=0))

    def _members(self, embeddings: Tensor, width: int | None = None) -> Tensor:
        """Return the members' embeddings, of unit length: (n, members, width)."""
        shape = (-1, self.members, self.dim // self.members if width is None else width)
        return ops.reshape(ops.cast(embeddings, "float32"), shape) * self.members**0.5

    def _nearness(self, members: Tensor, side: str) -> Tensor:
        """Return the mean cosine with the nearest items of the other side's bank, (n, members)."""
        others = self.banks["text" if side == "image" else "image"]
        cosines = ops.einsum("nmd,mbd->nmb", members, others)
        return ops.mean(ops.top_k(cosines, self.neighbours)[0], axis=-1)
