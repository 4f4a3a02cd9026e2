"""The twin network of the imgcap report: two layers after each encoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.image import ImageEncoder, Projection
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import OuterTextEncoderPart, TextEncoderPart, TextSpec
from vsemb.parts import Share

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class ProjectionMLP(Configured, keras.layers.Layer):
    """An encoder, a layer to the shared dimension, then an affine map and a leaky ReLU.

    The imgcap report, section 3.2: the score is the inner product of an image column and a sentence column. The first
    layer maps to the shared dimension. The second "applies an affine transform and so-called 'Leaky' rectified linear
    unit". In the report the first layer is linear; the released code applies the leaky ReLU there too
    (`activate_first`).

    Args:
        encoder: encoder to (batch, size); for raw features, a `vsemb.encoders.ImageEncoder` without projection.
        dim: size of the shared space.
        activate_first: whether a leaky ReLU follows the first layer too; default True.
        leak: slope of the leaky ReLU below zero, in [0, 1); default 0.01.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        inputs: inputs of the encoder.
        training: whether the encoder's dropout acts.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: if `leak` is outside [0, 1).

    Example:

    >>> from vsemb.encoders import ImageEncoder
    >>> column = ProjectionMLP(ImageEncoder(dim=16, projection=False), dim=8)
    >>> column(ops.ones((2, 16))).shape
    TensorShape([2, 8])
    """

    def __init__(
        self,
        encoder: keras.layers.Layer,
        dim: int,
        *,
        activate_first: bool = True,
        leak: Share = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.first = keras.layers.Dense(dim, dtype=self.dtype_policy, name="first")
        self.second = keras.layers.Dense(dim, dtype=self.dtype_policy, name="second")

    @property
    def scaling(self) -> Any:
        """Feature scaling of the encoder, or None."""
        return getattr(self.encoder, "scaling", None)

    def build(self, input_shape: Any) -> None:
        build_layers((self.encoder, input_shape))
        build_layers(
            (self.first, self.encoder.compute_output_shape(input_shape)), (self.second, (input_shape[0], self.dim))
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        shared = self.first(self.encoder(inputs, training=training))
        if self.activate_first:
            shared = ops.leaky_relu(shared, self.leak)
        return ops.leaky_relu(self.second(shared), self.leak)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class MLPText(OuterTextEncoderPart, kind="projection-mlp"):
    """A text encoder and a two-layer network, in place of the encoder's own map to the embedding.

    Attributes:
        encoder: the encoder before the network.
        activate_first: whether a leaky ReLU follows the first layer too.
    """

    encoder: TextEncoderPart = field(default_factory=Recurrent)
    activate_first: bool = True

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> ProjectionMLP:
        inner = self.encoder.build(None, spec, dtype)
        size = inner.compute_output_shape((None, None))[-1] if dim is None else dim
        return ProjectionMLP(inner, size, activate_first=self.activate_first, dtype=dtype)


@dataclass(frozen=True)
class MLP(Projection, kind="mlp"):
    """Two layers with leaky ReLUs (a column of the twin network in the imgcap report).

    Attributes:
        activate_first: whether a leaky ReLU follows the first layer too.
    """

    needs_size: ClassVar[bool] = True

    activate_first: bool = True

    def build(self, features: int | None, dim: int, **options: Any) -> ProjectionMLP:
        assert features is not None
        inner = ImageEncoder(features, projection=False, **options)
        return ProjectionMLP(inner, dim, activate_first=self.activate_first, dtype=options["dtype"])
