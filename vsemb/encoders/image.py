"""Image encoders: from backbone features, or from pixels through the backbone, to the embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured, build_layers, uniform
from vsemb.errors import invalid_argument
from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Part, Positive

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


@keras.saving.register_keras_serializable("vsemb")
class ImageEncoder(Configured, keras.layers.Layer):
    """Affine map of image features, x = W q + b (Kiros et al. 2014, section 2.2, without b).

    Without `projection` the features are the embedding, as in Reed et al. 2016, who train the text
    encoder alone.

    Args:
        dim: size of the embedding.
        use_bias: whether b is there.
        dropout: in training, the share of features set to 0.
        standardize: whether features first pass a `FeatureScaling`, whose statistics
            `scaling.adapt` sets.
        init_scale: W starts uniform in [-init_scale, init_scale]; None takes Glorot's.
        projection: whether the map is there; without, `dim` is the size of the features.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, feature_dim) float.
        training: whether dropout acts.

    Returns:
        (batch, dim).

    Example:

    >>> ImageEncoder(dim=8)(keras.ops.ones((2, 16))).shape
    TensorShape([2, 8])
    """

    def __init__(
        self,
        dim: int = 1024,
        *,
        use_bias: bool = True,
        dropout: float = 0.0,
        standardize: bool = False,
        init_scale: float | None = None,
        projection: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.scaling = FeatureScaling(dtype=self.dtype_policy) if standardize else None
        kernel = uniform(init_scale, "glorot_uniform")
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.affine: keras.layers.Dense | None = None
        if projection:
            self.affine = keras.layers.Dense(
                dim, use_bias=use_bias, kernel_initializer=kernel, dtype=self.dtype_policy, name="affine"
            )

    def build(self, input_shape: Any) -> None:
        build_layers((self.scaling, input_shape), (self.affine, input_shape))
        if self.affine is None and input_shape[-1] != self.dim:
            raise invalid_argument("dim", self.dim, f"{input_shape[-1]}, the features' size, with no projection")

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        if self.scaling is not None:
            features = self.scaling(features)
        features = self._dropout_layer(features, training=training)
        return features if self.affine is None else self.affine(features)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape[:-1], self.dim)


@keras.saving.register_keras_serializable("vsemb")
class PixelEncoder(Configured, keras.layers.Layer):
    """A convolutional backbone and the affine map behind it, trained together.

    Args:
        backbone: model from pixels, (batch, size, size, 3) float in 0..255, to (batch, features),
            as `vsemb.image.backbones.build_backbone` makes them.
        head: from features to the embedding: an `ImageEncoder`, for example.
        train_backbone: whether the backbone's weights are trained. Its batch normalisations use their
            stored statistics when it is pretrained (`frozen_statistics`).
        frozen_statistics: run the backbone in inference mode also while training, as is usual when
            fine-tuning with small batches.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        pixels: (batch, size, size, 3) float, 0..255.
        training: whether dropout acts and, unless `frozen_statistics`, batch statistics are used.

    Returns:
        what the head makes of the features, (batch, head.dim) by an `ImageEncoder`.
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: keras.layers.Layer,
        *,
        train_backbone: bool = True,
        frozen_statistics: bool = True,
        **kwargs: Any,
    ) -> None:
        # Pixels stay as they are: above 128, bfloat16 has every second whole number alone.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())
        backbone.trainable = train_backbone

    @property
    def dim(self) -> int:
        """Size of the embedding."""
        return self.head.dim

    def build(self, input_shape: Any) -> None:
        build_layers((self.head, (input_shape[0], self.backbone.output_shape[-1])))

    def call(self, pixels: Tensor, training: bool = False) -> Tensor:
        features = self.backbone(pixels, training=training and not self.frozen_statistics)
        return self.head(features, training=training)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return self.head.compute_output_shape((input_shape[0], self.backbone.output_shape[-1]))


@dataclass(frozen=True)
class Projection(Part, family="projection"):
    """How image features become the embedding; base of the family `projection`.

    Class attributes:
        needs_size: whether the features' size must be known when it is built.
        keeps_size: whether the embedding has the size of the features.
    """

    needs_size: ClassVar[bool] = False
    keeps_size: ClassVar[bool] = False

    def build(self, features: int | None, dim: int, **options: Any) -> keras.layers.Layer:
        """Builds the layer from features to the embedding.

        Args:
            features: size of a feature vector; None where it is not known yet.
            dim: size of the embedding.
            **options: `dropout`, `standardize` and `dtype` of an `ImageEncoder`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Affine(Projection, kind="affine"):
    """An affine map.

    Attributes:
        use_bias: whether the map has a bias.
        init_scale: the map starts uniform in +- this; null for Glorot's.
    """

    use_bias: bool = True
    init_scale: Positive | None = None

    def build(self, features: int | None, dim: int, **options: Any) -> ImageEncoder:
        return ImageEncoder(dim, **options, **self.arguments())


@dataclass(frozen=True)
class NoProjection(Projection, kind="none"):
    """The features are the embedding, as in Reed et al. 2016."""

    keeps_size: ClassVar[bool] = True

    def build(self, features: int | None, dim: int, **options: Any) -> ImageEncoder:
        return ImageEncoder(dim, projection=False, **options)
