"""The similarity `csd`: negative expected distances of normal distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.ops.geometry import l2_normalize
from vsemb.similarities import Similarity
from vsemb.systems.probabilistic.gaussians import sampled_distance, sampled_distance_matrix, split_rows

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
@dataclass(frozen=True)
class SampledDistance(Similarity, kind="csd"):
    """Negative closed-form sampled distance of normal distributions (PCME++, Chun 2024, arXiv:2305.18171).

    The first half of an embedding is the mean, which has unit length. The second half is the logarithm of the variance
    of each dimension. The sum of the variances is the uncertainty of an item.

    Example: both texts have the mean of the image. The second is less certain.

    >>> rows = SampledDistance().normalize(ops.array([[2.0, 0.0, -50, -50], [1, 0, -50, -50], [1, 0, -1, -1]]))
    >>> SampledDistance().scores(rows[:1], rows[1:]).numpy().round(2)
    array([[-0.  , -0.74]], dtype=float32)
    """

    geometry: ClassVar[str] = "means of unit length, then the logarithms of variances"

    def normalize(self, embeddings: Tensor) -> Tensor:
        means, log_variances = split_rows(embeddings)
        return ops.concatenate([l2_normalize(means), ops.cast(log_variances, "float32")], axis=-1)

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -sampled_distance_matrix(images, texts)

    def pair_scores(self, images: Tensor, texts: Tensor) -> Tensor:
        return -sampled_distance(images, texts)
