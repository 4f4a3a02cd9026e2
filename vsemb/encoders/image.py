"""Image encoders: from backbone features, or from pixels through the backbone, to the embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import keras

from vsemb.configured import Configured, build_layers, uniform
from vsemb.encoders.scaling import FeatureScaling
from vsemb.errors import invalid_argument
from vsemb.parts import Part, Positive

Tensor = Any


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
        build_layers((self.scaling, input_shape))
        if self.affine is not None:
            self.affine.build(input_shape)
        elif input_shape[-1] != self.dim:
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

    def build(
        self, features: int | None, dim: int, *, dropout: float, standardize: bool, dtype: str
    ) -> keras.layers.Layer:
        """Builds the layer from features to the embedding.

        Args:
            features: size of a feature vector; None where it is not known yet.
            dim: size of the embedding.
            dropout: share of features dropped in training.
            standardize: whether features are standardized first.
            dtype: dtype policy of the layer.
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

    def build(self, features: int | None, dim: int, *, dropout: float, standardize: bool, dtype: str) -> ImageEncoder:
        del features
        return ImageEncoder(dim, dropout=dropout, standardize=standardize, dtype=dtype, **self.arguments())


@dataclass(frozen=True)
class NoProjection(Projection, kind="none"):
    """The features are the embedding, as in Reed et al. 2016."""

    keeps_size: ClassVar[bool] = True

    def build(self, features: int | None, dim: int, *, dropout: float, standardize: bool, dtype: str) -> ImageEncoder:
        del features
        return ImageEncoder(dim, dropout=dropout, standardize=standardize, projection=False, dtype=dtype)
