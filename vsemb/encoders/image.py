"""Image encoders: map features of a backbone, or pixels, to the embedding."""

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
    """Standardize image features: unit length, then zero mean and unit deviation of each feature.

    Scaling to unit length removes the magnitude of a backbone's activations, which depends more on contrast than on
    content. Standardization gives features of all layers the same weight.

    Args:
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, dim) float.

    Returns:
        (batch, dim). Before `adapt`, the mean is 0 and the deviation 1.

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
        """Set mean and deviation.

        Args:
            features: (n, dim) float, of the training set.
        """
        if not self.built:
            self.build(features.shape)
        unit = ops.convert_to_numpy(l2_normalize(features))
        self.mean.assign(unit.mean(0))
        # Division by the deviation of a constant feature would overflow.
        deviation = unit.std(0)
        self.scale.assign(np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


@keras.saving.register_keras_serializable("vsemb")
class ImageEncoder(Configured, keras.layers.Layer):
    """Map image features to the embedding, x = W q + b (Kiros et al. 2014, section 2.2, where b = 0).

    Without `projection` the features are the embedding, as in Reed et al. 2016, who train only the text
    encoder.

    Args:
        dim: size of the embedding.
        use_bias: whether the map has the bias b.
        dropout: share of features set to 0 in training.
        standardize: whether features are first scaled by a `FeatureScaling`; `scaling.adapt` sets its statistics.
        init_scale: W is initialized uniformly in [-init_scale, init_scale]; None for Glorot's initializer.
        projection: whether the map is applied. Without it, `dim` must be the size of the features.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, feature_dim) float.
        training: whether dropout is applied.

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
    """Embed pixels with an image backbone and a head, trained together.

    The backbone is a functional or sequential Keras model: from `vsemb.image.backbones.build_backbone`,
    `keras.applications` or keras-hub, or your own. It must scale pixels itself. If it does not, put a
    `vsemb.image.backbones.PixelScaling` before it.

    Args:
        backbone: model from pixels, (batch, size, size, 3) float in 0..255, to features: (batch, features), or
            (batch, ..., features), which is averaged over positions.
        head: layer from (batch, features) to (batch, dim), such as an `ImageEncoder`.
        train_backbone: whether the backbone's weights are trained.
        frozen_statistics: whether the backbone runs in inference mode in training. Batch normalization then uses
            its stored statistics, as is usual when a pretrained backbone is fine-tuned with small batches.
        learning_rate_share: the share of the learning rate that the backbone's weights are trained with, by
            `vsemb.training.optimizers.FusedAdam`.
        resizing: fields of the `vsemb.image.resizing.Resizing` by which `decode` resizes images, as a preset says; None
            for the resizing of other networks.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        pixels: (batch, size, size, 3) float, 0..255; or views of each image, (batch, views, size, size, 3), whose
            embeddings are averaged.
        training: whether to apply dropout and, unless `frozen_statistics`, use batch statistics.

    Returns:
        (batch, dim), the output of the head.

    Example:

    >>> backbone = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(5, 3)])
    >>> PixelEncoder(backbone, ImageEncoder(4))(keras.ops.ones((2, 8, 8, 3))).shape
    TensorShape([2, 4])
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: keras.layers.Layer,
        *,
        train_backbone: bool = True,
        frozen_statistics: bool = True,
        learning_rate_share: float = 1.0,
        resizing: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # Pixels stay as they are: above 128, bfloat16 has every second whole number alone.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())
        if not (isinstance(backbone, keras.Model) and backbone.built):
            fix = "Call a class, and begin a Sequential with keras.Input((224, 224, 3))."
            raise invalid_argument("backbone", backbone, "a Keras model of known input shape", fix)
        backbone.trainable = train_backbone
        for variable in backbone.trainable_variables:
            variable.learning_rate_share = learning_rate_share

    @property
    def dim(self) -> int:
        """Size of the embedding."""
        return self.head.dim

    def build(self, input_shape: Any) -> None:
        build_layers((self.head, (input_shape[0], self.backbone.output_shape[-1])))

    def call(self, pixels: Tensor, training: bool = False) -> Tensor:
        self._check_shape(tuple(pixels.shape))
        if len(pixels.shape) > len(self.backbone.input_shape):
            rows = self.call(ops.reshape(pixels, (-1, *pixels.shape[2:])), training)
            return ops.mean(ops.reshape(rows, (-1, pixels.shape[1], rows.shape[-1])), axis=1)
        features = self.backbone(pixels, training=training and not self.frozen_statistics)
        if len(features.shape) > 2:
            features = ops.mean(features, axis=tuple(range(1, len(features.shape) - 1)))
        return self.head(features, training=training)

    def _check_shape(self, shape: tuple[int | None, ...]) -> None:
        expected = self.backbone.input_shape[1:]
        sizes = zip(expected, shape[-len(expected) :], strict=False)
        fits = all(None in pair or pair[0] == pair[1] for pair in sizes)
        if len(shape) <= len(expected) or not fits:
            fix = "Resize the images, or build the backbone for their size."
            raise invalid_argument("pixels", f"shape {shape}", f"of shape (batch, {str(expected)[1:]}", fix)

    def decode(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Decode images to pixels of the backbone's input size, in the graph; TensorFlow only.

        Args:
            encoded: (batch,) string, bytes of JPEG or PNG images.

        Returns:
            Pixels, (batch, size, size, 3) float32 in 0..255, and a mask of decoded rows, (batch,) bool.

        Raises:
            InvalidArgumentError: if the backbone has no fixed input size.
        """
        # Encoders do without TensorFlow, which `vsemb.image` imports.
        from vsemb.image.decode import decode_images
        from vsemb.image.resizing import Resizing

        shape = self.backbone.input_shape
        if len(shape) != 4 or not shape[1] or shape[1] != shape[2]:
            fix = "Build it with input_shape=(224, 224, 3), for example."
            raise invalid_argument("backbone", shape, "a network of square images of a fixed size", fix)
        resizing = None if self.resizing is None else Resizing(**self.resizing)
        return decode_images(encoded, shape[1], resizing=resizing)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return self.head.compute_output_shape((input_shape[0], self.backbone.output_shape[-1]))


@dataclass(frozen=True)
class Projection(Part, family="projection"):
    """Map from image features to the embedding; base of the family `projection`.

    Class attributes:
        needs_size: whether the features' size must be known when it is built.
        keeps_size: whether the embedding has the size of the features.
        affine: whether the layer has an attribute `affine`, the whole map from features to the embedding.
    """

    needs_size: ClassVar[bool] = False
    keeps_size: ClassVar[bool] = False
    affine: ClassVar[bool] = False

    def build(self, features: int | None, dim: int, **options: Any) -> keras.layers.Layer:
        """Build the layer from features to the embedding.

        Args:
            features: size of a feature vector; None if it is not known yet.
            dim: size of the embedding.
            **options: `dropout`, `standardize` and `dtype` of an `ImageEncoder`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Affine(Projection, kind="affine"):
    """An affine map.

    Attributes:
        use_bias: whether the map has a bias.
        init_scale: the map is initialized uniformly in +- this; null for Glorot's initializer.
    """

    affine: ClassVar[bool] = True

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
