"""Encoders whose embedding is multiplied by a learned factor, as tangent vectors for the exponential map."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.image import Affine, ImageEncoder
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import OuterTextEncoderPart, TextEncoderPart, TextSpec
from vsemb.errors import invalid_argument
from vsemb.parts import Positive

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class LearnedFactor(Configured, keras.layers.Layer):
    """Multiply by a learned factor: sqrt(c) times alpha of MERU (arXiv:2304.09172), with the curvature -c.

    The logarithm of the factor is learned, and clipped. The paper clips alpha at 1 and c at 10, so their product is at
    most sqrt(10).

    Args:
        initial: initial factor; None for 1 / sqrt(size of the embedding), as in the paper.
        maximum: largest factor.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        embeddings: (batch, dim) float.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an initial factor above the maximum.

    Example: the initial factor for four entries is 1 / 2.

    >>> LearnedFactor()(ops.ones((1, 4))).numpy().tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """

    def __init__(self, initial: Positive | None = None, maximum: Positive = 10**0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if initial is not None and initial > maximum:
            raise invalid_argument("initial", initial, f"a number > 0 and <= maximum={maximum}")

    def build(self, input_shape: Any) -> None:
        initial = input_shape[-1] ** -0.5 if self.initial is None else self.initial
        # A bound on the variable and not only in `call`, whose gradient would be 0 beyond it, for ever.
        self.log_factor = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(math.log(initial)),
            constraint=lambda value: ops.minimum(value, math.log(self.maximum)),
            # Not cast with the policy: bfloat16 would change the factor by up to 1 %, and hide small steps.
            autocast=False,
            name="log_factor",
        )

    def call(self, embeddings: Tensor) -> Tensor:
        scaled = ops.cast(embeddings, "float32") * ops.exp(ops.cast(self.log_factor, "float32"))
        return ops.cast(scaled, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


@keras.saving.register_keras_serializable("vsemb")
class ScaledImageEncoder(ImageEncoder):
    """An `ImageEncoder` whose embedding is multiplied by a learned factor, see `LearnedFactor`.

    Args:
        dim: size of the embedding.
        **kwargs: arguments of `ImageEncoder`.

    It is called as `ImageEncoder` is.

    Example:

    >>> ScaledImageEncoder(8)(ops.ones((2, 16))).shape
    TensorShape([2, 8])
    """

    def __init__(self, dim: int = 1024, **kwargs: Any) -> None:
        super().__init__(dim, **kwargs)
        self.keep_arguments(locals())
        self.factor = LearnedFactor(dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        build_layers((self.factor, (input_shape[0], self.dim)))

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        return self.factor(super().call(features, training=training))


@keras.saving.register_keras_serializable("vsemb")
class ScaledTextEncoder(Configured, keras.layers.Layer):
    """A text encoder whose embedding is multiplied by a learned factor, see `LearnedFactor`.

    Args:
        encoder: the text encoder.
        initial: initial factor; None for 1 / sqrt(size of the embedding).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, or what the encoder reads.
        training: whether dropout is applied.

    Returns:
        (batch, dim).

    Example:

    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> ScaledTextEncoder(LinearSentenceEncoder(WordEmbedding(10, 4)))(ops.ones((1, 3), "int32")).shape
    TensorShape([1, 4])
    """

    def __init__(self, encoder: keras.layers.Layer, initial: float | None = None, **kwargs: Any) -> None:
        # The encoder casts what it reads.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())
        self.factor = LearnedFactor(initial, dtype=self.dtype_policy)

    @property
    def dim(self) -> int:
        """Size of the embedding."""
        return self.encoder.dim

    def build(self, input_shape: Any) -> None:
        build_layers((self.encoder, input_shape), dtype="int32")
        build_layers((self.factor, self.encoder.compute_output_shape(input_shape)))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        return self.factor(self.encoder(token_ids, training=training))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.encoder.compute_output_shape(input_shape)


@dataclass(frozen=True)
class ScaledAffine(Affine, kind="scaled-affine"):
    """An affine map and a learned factor, which starts at 1 / sqrt(size of the embedding)."""

    def build(self, features: int | None, dim: int, **options: Any) -> ScaledImageEncoder:
        return ScaledImageEncoder(dim, **options, **self.arguments())


@dataclass(frozen=True)
class Scaled(OuterTextEncoderPart, kind="scaled"):
    """A text encoder and a learned factor.

    Attributes:
        encoder: the encoder.
        initial: initial factor, for embeddings of about length 1; null for 1 / sqrt(size of the embedding), which suits
            encoders whose entries have the deviation 1.
    """

    encoder: TextEncoderPart = field(default_factory=Recurrent)
    initial: Positive | None = None

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> ScaledTextEncoder:
        return ScaledTextEncoder(self.encoder.build(dim, spec, dtype), self.initial, dtype=dtype)
