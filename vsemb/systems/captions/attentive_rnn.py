"""The multimodal recurrent network that looks at the places of an image again at every word."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.encoders import WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.systems.captions.multimodal_rnn import GATES, MultimodalRNN

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class AttentiveRNN(MultimodalRNN):
    """A `MultimodalRNN` with attention between its cell and its softmax (Luong et al. 2015, section 3.1).

        b_v = W_hi mean_p v_p                                       (13, of the places' mean)
        h_t as in equation 14
        c_t = attention of h_t to v_1 ... v_P                       (Vaswani et al. 2017, equation 4)
        y_t = softmax(W_oh tanh(W_c [h_t; c_t]) + b_o)              (Luong, equations 5 and 6)

    One vector an image has to say which colour goes with which shape by itself. Here the cell asks: behind
    "a red" it looks where red is, and finds the shape there. Since c_t does not go back into the cell, all
    words of a caption are still trained at once.

    Args:
        image_encoder: layer from images to v, (n, places, units), two places at least:
            `vsemb.encoders.PixelEncoder` with a `SpatialFeatureEncoder`.
        words: see `MultimodalRNN`.
        heads: attention heads; they divide `units`.
        **kwargs: other arguments of `MultimodalRNN`.

    Raises:
        InvalidArgumentError: as there, and for heads that do not divide `units`.

    Example:

    >>> from vsemb.systems.captions.spatial_features import SpatialFeatureEncoder
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
            allowed = f"a layer to two or more places of {self.units} = units entries"
            raise invalid_argument("image_encoder", f"one to {shape[1:]}", allowed)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        places = (None, None, self.units)
        self.summary.build((None, self.units))
        self.attention.build(places, places)
        self.combination.build((None, None, 2 * self.units))

    def _look(self, image: Tensor, training: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
        places = ops.cast(self.image_encoder(image, training=training), self.words.compute_dtype)
        return self.summary(ops.mean(places, axis=1)), {"places": places}

    def _to_say(self, hidden: Tensor, seen: dict[str, Tensor]) -> Tensor:
        places = seen["places"]
        looked = self.attention(hidden, places, places)
        return self.combination(ops.concatenate([hidden, looked], axis=-1))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "heads": self.heads}
