"""The encoder of image regions: from a set of feature vectors to a set of embeddings."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.encoders.image import ImageEncoder

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class RegionEncoder(ImageEncoder):
    """Affine map of every region's features, v = W CNN(I_b) + b (Karpathy, Fei-Fei 2015, equation 1).

    An image is a set of regions, and a row of zeros is none: it stays zeros, whatever the bias is and the
    scaling makes of it. So images with fewer regions than others are padded with zeros.

    Args:
        dim: size of the embedding; 1000 to 1600 in the paper.
        use_bias: whether b is there.
        dropout: in training, the share of features set to 0.
        standardize: whether features first pass a `FeatureScaling`, whose statistics `scaling.adapt` sets; it
            wants the features of regions without the padding, (regions, feature_dim).
        init_scale: W starts uniform in [-init_scale, init_scale]; None takes Glorot's.
        projection: whether the map is there; without, `dim` is the size of the features.
        **kwargs: the arguments behind `dim`, and those of `keras.layers.Layer`.

    Call args:
        features: (batch, regions, feature_dim) float, a row of zeros = padding.
        training: whether dropout acts.

    Returns:
        (batch, regions, dim), zeros where padding stands.

    Example: the second region is padding.

    >>> features = keras.ops.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    >>> regions = RegionEncoder(dim=8)(features)
    >>> regions.shape, bool(ops.any(regions[0, 0] != 0)), bool(ops.any(regions[0, 1] != 0))
    (TensorShape([1, 2, 8]), True, False)
    """

    def __init__(self, dim: int = 1000, **kwargs: Any) -> None:
        super().__init__(dim, **kwargs)

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        mask = ops.any(ops.not_equal(features, 0), axis=-1, keepdims=True)  # (batch, regions, 1)
        regions = super().call(features, training=training)
        return ops.where(mask, regions, ops.zeros_like(regions))
