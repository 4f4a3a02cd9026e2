"""Encoders of normal distributions: one linear map gives the means, and another gives the log variances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import keras

from vsemb.configured import Configured, build_layers
from vsemb.encoders.image import Affine, ImageEncoder
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import OuterTextEncoderPart, TextEncoderPart, TextSpec
from vsemb.parts import Positive
from vsemb.systems.probabilistic.gaussians import require_even, with_start

Tensor = Any

#: Initial total variance of an item. The distance of the means of two items is 2 at the start.
START = 0.1


@keras.saving.register_keras_serializable("vsemb")
class GaussianImageEncoder(ImageEncoder):
    """An `ImageEncoder` of normal distributions: means, then log variances, for the similarity `csd`.

    Args:
        dim: size of a row, twice the number of dimensions.
        variance: total variance of an item at the start, about; > 0.
        **kwargs: arguments of `ImageEncoder`.

    It is called as `ImageEncoder` is.

    Raises:
        InvalidArgumentError: for an odd size.

    Example:

    >>> GaussianImageEncoder(8)(keras.ops.ones((2, 16))).shape
    TensorShape([2, 8])
    """

    def __init__(self, dim: int = 1024, *, variance: Positive = START, **kwargs: Any) -> None:
        super().__init__(dim, **kwargs)
        self.keep_arguments(locals())
        require_even(dim)

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        return with_start(super().call(features, training=training), self.variance)


@keras.saving.register_keras_serializable("vsemb")
class GaussianTextEncoder(Configured, keras.layers.Layer):
    """A text encoder of normal distributions: means, then log variances, for the similarity `csd`.

    Args:
        encoder: the text encoder. Its embedding is a row, without the constant that `variance` adds.
        variance: total variance of a text at the start, about; > 0.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, or what the encoder reads.
        training: whether dropout is applied.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an encoder of an odd size.

    Example:

    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> GaussianTextEncoder(LinearSentenceEncoder(WordEmbedding(10, 4)))(keras.ops.ones((1, 3), "int32")).shape
    TensorShape([1, 4])
    """

    def __init__(self, encoder: keras.layers.Layer, variance: Positive = START, **kwargs: Any) -> None:
        # The encoder casts what it reads.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())

    @property
    def dim(self) -> int:
        """Size of a row."""
        return self.encoder.dim

    def build(self, input_shape: Any) -> None:
        build_layers((self.encoder, input_shape), dtype="int32")
        require_even(self.encoder.compute_output_shape(input_shape)[-1])

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        return with_start(self.encoder(token_ids, training=training), self.variance)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.encoder.compute_output_shape(input_shape)


@dataclass(frozen=True)
class GaussianAffine(Affine, kind="gaussian-affine"):
    """An affine map to means and one to log variances; the embedding has twice as many entries as dimensions.

    Attributes:
        variance: total variance of an image at the start, about.
    """

    variance: Positive = START

    def build(self, features: int | None, dim: int, **options: Any) -> GaussianImageEncoder:
        return GaussianImageEncoder(dim, **options, **self.arguments())


@dataclass(frozen=True)
class Gaussian(OuterTextEncoderPart, kind="gaussian"):
    """A text encoder of means and log variances; the embedding has twice as many entries as dimensions.

    Attributes:
        encoder: the encoder.
        variance: total variance of a text at the start, about.
    """

    encoder: TextEncoderPart = field(default_factory=Recurrent)
    variance: Positive = START

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> GaussianTextEncoder:
        return GaussianTextEncoder(self.encoder.build(dim, spec, dtype), self.variance, dtype=dtype)
