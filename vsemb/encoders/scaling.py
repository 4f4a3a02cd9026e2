"""Scaling of image features by statistics of the training set."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.ops.geometry import l2_normalize

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class FeatureScaling(Configured, keras.layers.Layer):
    """Evens out image features: unit length, then zero mean and unit deviation of each feature.

    The strength of a backbone's activations says more about contrast than about content: the unit
    length removes it. Then every feature gets the same say, whichever layer it comes from.

    Args:
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, dim) float.

    Returns:
        (batch, dim). Until `adapt` has seen the training features, mean 0 and deviation 1 are taken.

    Example: at unit length the features are (0.6, 0.8) and (0.8, 0.6).

    >>> layer = FeatureScaling()
    >>> layer.adapt(np.array([[3.0, 4.0], [4.0, 3.0]], np.float32))
    >>> np.round(ops.convert_to_numpy(layer(np.array([[6.0, 8.0]], np.float32))), 3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def build(self, input_shape: Any) -> None:
        # Not cast with the policy: a mean many deviations from zero needs all of float32.
        options = {"shape": (input_shape[-1],), "trainable": False, "autocast": False}
        self.mean = self.add_weight(initializer="zeros", name="mean", **options)
        self.scale = self.add_weight(initializer="ones", name="scale", **options)

    def call(self, features: Tensor) -> Tensor:
        mean, scale = ops.cast(self.mean, "float32"), ops.cast(self.scale, "float32")
        return ops.cast((l2_normalize(features) - mean) * scale, self.compute_dtype)

    def adapt(self, features: np.ndarray) -> None:
        """Takes mean and deviation from the features of the training set, (n, dim)."""
        if not self.built:
            self.build(features.shape)
        unit = ops.convert_to_numpy(l2_normalize(features))
        self.mean.assign(unit.mean(0))
        # A feature that never varies has nothing to say; dividing by its deviation would blow it up.
        deviation = unit.std(0)
        self.scale.assign(np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape
