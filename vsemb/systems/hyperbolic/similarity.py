"""The similarity `lorentz`: negative distances in hyperbolic space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.ops.lorentz import lorentz_distance, lorentz_distance_matrix
from vsemb.similarities import Similarity

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class Lorentz(Similarity, kind="lorentz"):
    """Negative distance on the hyperboloid of curvature -1 (MERU, arXiv:2304.09172).

    An embedding is the tangent vector of its point at the root, of any length. The length is the distance to the root.
    The exponential map, which gives coordinates on the hyperboloid, is `vsemb.ops.lorentz.exponential_map`.

    Example: the root is at distance 2 from the first text, and at 0 from itself.

    >>> Lorentz().scores(ops.array([[0.0, 0.0]]), ops.array([[0.0, 2.0], [0.0, 0.0]])).numpy().round(4)
    array([[-2., -0.]], dtype=float32)
    """

    self_score: ClassVar[float | None] = 0.0

    geometry: ClassVar[str] = "tangent vectors at the root of hyperbolic space; the length is the distance to the root"

    def normalize(self, embeddings: Tensor) -> Tensor:
        return ops.cast(embeddings, "float32")

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -lorentz_distance_matrix(images, texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -lorentz_distance(images, texts)
