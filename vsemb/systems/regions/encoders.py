"""Multi-vector encoders: one vector per region of an image, and one contextual vector per word of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.configured import Configured, build_layers, uniform
from vsemb.encoders.cells import ReLUCell
from vsemb.encoders.image import ImageEncoder
from vsemb.encoders.recurrent import GRU, LSTM
from vsemb.encoders.text_encoder import WordEmbedding, WordEncoderPart, padding_mask
from vsemb.parts import Count, Positive, Share, Size

Tensor = Any

Cell = Literal["brnn", "gru", "lstm"]


@keras.saving.register_keras_serializable("vsemb")
class RegionEncoder(ImageEncoder):
    """Affine map of every region's features, v = W CNN(I_b) + b (Karpathy, Fei-Fei 2015, equation 1).

    An image is a set of regions, and a row of zeros is padding. Padding stays zeros, independently of bias and
    scaling. Images with fewer regions than others are padded with zeros.

    Args:
        dim: size of the embedding; 1000 to 1600 in the paper.
        use_bias: whether the map has the bias b.
        dropout: share of features set to 0 in training.
        standardize: whether features first pass a `FeatureScaling`. `scaling.adapt` sets its statistics from features
            of regions without padding, (regions, feature_dim).
        init_scale: W is initialized uniformly in [-init_scale, init_scale]; None for Glorot's range.
        projection: whether the map is applied; if false, `dim` is the size of the features.
        **kwargs: the arguments after `dim`, and the arguments of `keras.layers.Layer`.

    Call args:
        features: (batch, regions, feature_dim) float; a row of zeros is padding.
        training: whether dropout is applied.

    Returns:
        (batch, regions, dim); zeros for padding.

    Example: the second region is padding.

    >>> features = keras.ops.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    >>> regions = RegionEncoder(dim=8)(features)
    >>> regions.shape, bool(ops.any(regions[0, 0] != 0)), bool(ops.any(regions[0, 1] != 0))
    (TensorShape([1, 2, 8]), True, False)
    """

    def call(self, features: Tensor, training: bool = False) -> Tensor:
        mask = ops.any(ops.not_equal(features, 0), axis=-1, keepdims=True)  # (batch, regions, 1)
        regions = super().call(features, training=training)
        return ops.where(mask, regions, ops.zeros_like(regions))


@keras.saving.register_keras_serializable("vsemb")
class ContextualTokenEncoder(Configured, keras.layers.Layer):
    """Bidirectional encoder of a sentence to one vector per word (Karpathy, Fei-Fei 2015, 3.1.2).

    With `cell="brnn"`, where f is the ReLU:

    | equation | here |
    | --- | --- |
    | (2) x_t = W_w I_t | `words` |
    | (3) e_t = f(W_e x_t + b_e) | `inner` |
    | (4) h^f_t = f(e_t + W_f h^f_{t-1} + b_f) | `recurrent.forward_layer`, a `ReLUCell` |
    | (5) h^b_t = f(e_t + W_b h^b_{t+1} + b_b) | `recurrent.backward_layer` |
    | (6) s_t = f(W_d (h^f_t + h^b_t) + b_d) | `outer` |

    With `"gru"` or `"lstm"`, Keras' cells over x_t replace (3) to (5); (6) stays unchanged, with its ReLU. So s_t has
    only entries >= 0 with every cell. An uninformative word can be exactly zero, and then adds nothing in
    `vsemb.systems.regions.similarities.MaxSim`.

    Dropout is applied to x_t (the dropout of `words`), to e_t and to h^f_t + h^b_t, but not inside the recurrence.

    Args:
        words: word embedding; 300-dimensional in the paper, fixed or trained.
        dim: size of s_t, the embedding; 1000 to 1600 in the paper; None for `units`; default 1000.
        cell: `"brnn"` (the paper and the default), `"gru"` or `"lstm"`.
        units: size of the hidden states; 300 to 600 in the paper; default 512.
        dropout: share of entries of e_t and of h^f_t + h^b_t set to 0 in training.
        init_scale: all matrices are initialized uniformly in [-init_scale, init_scale]. None for Glorot's range, and
            for orthogonal matrices in recurrences, times 1/2 in `ReLUCell`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 for padding, which states skip.
        training: whether dropout is applied.

    Returns:
        (batch, steps, dim); zeros for padding.

    Raises:
        InvalidArgumentError: if the cell is unknown, or a size is below 1.

    Example: the last of three steps is padding.

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> vectors = ContextualTokenEncoder(words, dim=8, units=6)(np.array([[2, 3, 0]]))
    >>> vectors.shape, bool(ops.any(vectors[0, 2] != 0))
    (TensorShape([1, 3, 8]), False)

    References:
        Karpathy, Fei-Fei. Deep Visual-Semantic Alignments for Generating Image Descriptions. CVPR 2015.
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: Count | None = 1000,
        *,
        cell: Cell = "brnn",
        units: Count = 512,
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.dim = dim or units
        self.inner = self._dense(units, "inner") if cell == "brnn" else None
        self.recurrent = self._both_directions()
        self.outer = self._dense(self.dim, "outer")
        self._dropout_layers = [keras.layers.Dropout(dropout, dtype=self.dtype_policy) for _ in range(2)]

    def _dense(self, size: int, name: str) -> keras.layers.Dense:
        kernel = uniform(self.init_scale, "glorot_uniform")
        return keras.layers.Dense(
            size, activation="relu", kernel_initializer=kernel, dtype=self.dtype_policy, name=name
        )

    def _both_directions(self) -> keras.layers.Bidirectional:
        options: dict[str, Any] = {"return_sequences": True, "dtype": self.dtype_policy}
        if self.cell == "brnn":
            cell = ReLUCell(self.units, uniform(self.init_scale, None), dtype=self.dtype_policy)
            layer = keras.layers.RNN(cell, **options)
        else:
            cells = {"gru": GRU, "lstm": LSTM}
            options["kernel_initializer"] = uniform(self.init_scale, "glorot_uniform")
            options["recurrent_initializer"] = uniform(self.init_scale, "orthogonal")
            layer = cells[self.cell](self.units, **options)
        return keras.layers.Bidirectional(layer, merge_mode="sum", dtype=self.dtype_policy, name="recurrent")

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape), (self.inner, (*input_shape, self.words.dim)))
        size = self.words.dim if self.inner is None else self.units
        build_layers((self.recurrent, (*input_shape, size)), (self.outer, (*input_shape, self.units)))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        mask = padding_mask(token_ids)
        states = self.words(token_ids, training=training)  # (batch, steps, words.dim)
        if self.inner is not None:
            states = self._dropout_layers[0](self.inner(states), training=training)
        # A masked step keeps the state, so the backward direction starts at the last word.
        states = self.recurrent(states, mask=mask, training=training)
        vectors = self.outer(self._dropout_layers[1](states, training=training))
        return ops.where(ops.expand_dims(mask, -1), vectors, ops.zeros_like(vectors))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape, self.dim)


@dataclass(frozen=True)
class ContextualTokens(WordEncoderPart, kind="contextual-tokens"):
    """One vector per word, read in both directions (Karpathy, Fei-Fei 2015, section 3.1.2).

    Attributes:
        words: word embedding.
        cell: `brnn` (the paper), `gru` or `lstm`.
        units: size of the hidden states.
        dropout: share of entries dropped in training before and after the recurrence.
        init_scale: all matrices are uniform in +- this; null for Glorot's range and orthogonal recurrences.
    """

    accepts: ClassVar[tuple[str, ...]] = ("ids",)
    produces: ClassVar[str] = "multi_vector"
    layer: ClassVar[type[keras.layers.Layer]] = ContextualTokenEncoder

    cell: Cell = "brnn"
    units: Size = 512
    dropout: Share = 0.0
    init_scale: Positive | None = None
