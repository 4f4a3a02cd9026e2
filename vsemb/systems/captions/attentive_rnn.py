"""The multimodal recurrent network that looks at the grid cells of an image again at every word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import Configured
from vsemb.encoders import PixelEncoder, WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.image.backbones import build_backbone
from vsemb.image.presets import display_name
from vsemb.parts import Count
from vsemb.systems.captions.multimodal_rnn import GATES, Decoder, MultimodalRNN

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class SpatialFeatureEncoder(Configured, keras.layers.Layer):
    """Affine map of what each grid cell of an image shows, and of where it is: v_p = ReLU(W f_p + b_p).

    The cells are those of a convolutional network's map, laid flat.

    Args:
        cells: their number, height x width of the map.
        dim: size of a cell's vector.
        dropout: in training, the share of features set to 0.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, cells x channels) float, cell by cell, as pooling `flat` gives them.
        training: whether dropout acts.

    Returns:
        (batch, cells, dim).

    Raises:
        InvalidArgumentError: for a number < 1, or features that are not those of so many cells.

    Example:

    >>> SpatialFeatureEncoder(cells=4, dim=8)(ops.ones((2, 4 * 3))).shape
    TensorShape([2, 4, 8])
    """

    def __init__(self, cells: Count, dim: Count, *, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.affine = keras.layers.Dense(dim, use_bias=False, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        channels, rest = divmod(input_shape[-1], self.cells)
        if rest or not channels:
            allowed = f"a multiple of cells={self.cells} in a row"
            raise invalid_argument("features", input_shape[-1], allowed)
        self.affine.build((input_shape[0], self.cells, channels))
        self.position = self.add_weight(shape=(self.cells, self.dim), initializer="zeros", name="position")

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        features = self._dropout_layer(features, training=training)
        features = ops.reshape(features, (-1, self.cells, features.shape[-1] // self.cells))
        return ops.relu(self.affine(features) + ops.cast(self.position, self.compute_dtype))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return input_shape[0], self.cells, self.dim


@keras.saving.register_keras_serializable("vsemb")
class AttentiveRNN(MultimodalRNN):
    """A `MultimodalRNN` with attention between its cell and its softmax (Luong et al. 2015, section 3.1).

        b_v = W_hi mean_p v_p                                       (13, of the cells' mean)
        h_t as in equation 14
        c_t = attention of h_t to v_1 ... v_P                       (Vaswani et al. 2017, equation 4)
        y_t = softmax(W_oh tanh(W_c [h_t; c_t]) + b_o)              (Luong, equations 5 and 6)

    One vector an image has to say which colour goes with which shape by itself. Here the cell asks: behind
    "a red" it looks where red is, and finds the shape there. Since c_t does not go back into the cell, all
    words of a caption are still trained at once.

    Args:
        image_encoder: layer from images to v, (n, cells, units), two cells at least:
            `vsemb.encoders.PixelEncoder` with a `SpatialFeatureEncoder`.
        words: see `MultimodalRNN`.
        heads: attention heads; they divide `units`.
        **kwargs: other arguments of `MultimodalRNN`.

    Raises:
        InvalidArgumentError: as there, and for heads that do not divide `units`.

    Example:

    >>> model = AttentiveRNN(SpatialFeatureEncoder(4, 8), WordEmbedding(10, 6), units=8, heads=2)
    >>> model({"image": ops.ones((2, 4 * 5)), "text": ops.array([[2, 3, 4], [5, 0, 0]])}).shape
    TensorShape([2, 4, 10])

    References:
        Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015,
        arXiv:1508.04025.
        Xu et al. Show, Attend and Tell. ICML 2015, arXiv:1502.03044.
    """

    def __init__(
        self, image_encoder: keras.layers.Layer, words: WordEmbedding, *, heads: int = 4, **kwargs: Any
    ) -> None:
        super().__init__(image_encoder, words, **kwargs)
        if heads < 1 or self.units % heads:
            raise invalid_argument("heads", heads, f"a divisor of units={self.units}")
        self.heads = heads
        options: dict[str, Any] = {"dtype": words.dtype_policy}
        self.summary = keras.layers.Dense(GATES[self.cell] * self.units, use_bias=False, name="summary", **options)
        self.attention = keras.layers.MultiHeadAttention(heads, self.units // heads, name="attention", **options)
        self.combination = keras.layers.Dense(
            self.units, activation="tanh", use_bias=False, name="combination", **options
        )

    def _check_image_encoder(self, encoder: keras.layers.Layer) -> None:
        shape = encoder.compute_output_shape((None, 1))
        if len(shape) != 3 or shape[-1] != self.units or (shape[1] or 0) < 2:
            allowed = f"a layer to two or more grid cells of {self.units} = units entries"
            raise invalid_argument("image_encoder", f"one to {shape[1:]}", allowed)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        cells = (None, None, self.units)
        self.summary.build((None, self.units))
        self.attention.build(cells, cells)
        self.combination.build((None, None, 2 * self.units))

    def _look(self, image: Tensor, training: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        cells = ops.cast(self.image_encoder(image, training=training), self.words.compute_dtype)
        return self.summary(ops.mean(cells, axis=1)), {"cells": cells}

    def _to_say(self, hidden: Tensor, seen: dict[str, Tensor]) -> Tensor:
        cells = seen["cells"]
        looked = self.attention(hidden, cells, cells)
        return self.combination(ops.concatenate([hidden, looked], axis=-1))


@dataclass(frozen=True)
class AttentiveDecoder(Decoder, kind="attentive"):
    """A recurrent network that looks at the grid cells of the image again at every word.

    Attributes:
        heads: attention heads; they divide `units`.
    """

    model: ClassVar[type[keras.Model]] = AttentiveRNN

    heads: Count = 4

    def check(self) -> None:
        if self.units % self.heads:
            raise invalid_argument("decoder.heads", self.heads, f"a divisor of units={self.units}")

    def check_image(self, image: Any) -> None:
        if not image.from_pixels:
            fix = "Train from pixels: see the variant attention of multimodal-rnn."
            raise invalid_argument("image", image.kind, "'pixels' with decoder=attentive", fix)
        if image.pooling != "flat" or image.layer is not None:
            name, value = ("pooling", image.pooling) if image.pooling != "flat" else ("layer", image.layer)
            allowed = "'flat', and no image.layer, with decoder=attentive"
            raise invalid_argument(f"image.{name}", value, allowed, "Add --set image.pooling=flat.")
        if not image.projection.keeps_size:
            fix = "The decoder maps each grid cell by itself."
            raise invalid_argument("image.projection", image.projection.kind, "'none' with decoder=attentive", fix)

    def image_encoder(self, image: Any, info: Mapping[str, Any], seed: int, dtype: str) -> keras.layers.Layer:
        network = image.config.network
        if network is not None and not network.gives_map:
            name = display_name(image.backbone)
            raise invalid_argument("image.backbone", name, "a network that gives a map, with decoder=attentive")
        backbone = build_backbone(image.config, image.weights, seed=seed)
        height, width = backbone.get_layer("flat").input.shape[1:3]
        cells = SpatialFeatureEncoder(height * width, self.units, dropout=image.dropout, dtype=dtype)
        return PixelEncoder(backbone, cells, frozen_statistics=image.frozen_statistics, dtype=dtype)
