"""The encoder of an image's places: from a convolutional network's map, laid flat, to a set of vectors."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.errors import invalid_argument

Tensor = Any


@keras.saving.register_keras_serializable("vsemb", name="PlaceEncoder")
class SpatialFeatureEncoder(keras.layers.Layer):
    """Affine map of what each place of an image shows, and of where it is: v_p = ReLU(W f_p + b_p).

    Args:
        places: their number, height x width of the map.
        dim: size of a place's vector.
        dropout: in training, the share of features set to 0.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, places x channels) float, place by place, as pooling `flat` gives them.
        training: whether dropout acts.

    Returns:
        (batch, places, dim).

    Raises:
        InvalidArgumentError: for a number < 1, or features that are not those of so many places.

    Example:

    >>> SpatialFeatureEncoder(places=4, dim=8)(ops.ones((2, 4 * 3))).shape
    TensorShape([2, 4, 8])
    """

    def __init__(self, places: int, dim: int, *, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, number in (("places", places), ("dim", dim)):
            if number < 1:
                raise invalid_argument(name, number, "an integer >= 1")
        self.places = places
        self.dim = dim
        self.dropout = dropout
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.affine = keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        channels, rest = divmod(input_shape[-1], self.places)
        if rest or not channels:
            allowed = f"a multiple of places={self.places} in a row"
            raise invalid_argument("features", input_shape[-1], allowed)
        self.affine.build((input_shape[0], self.places, channels))
        self.position = self.add_weight(shape=(self.places, self.dim), initializer="zeros", name="position")

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        features = self._dropout_layer(features, training=training)
        features = ops.reshape(features, (-1, self.places, features.shape[-1] // self.places))
        return ops.relu(self.affine(features) + ops.cast(self.position, self.compute_dtype))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return input_shape[0], self.places, self.dim

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "places": self.places,
            "dim": self.dim,
            "dropout": self.dropout,
        }
