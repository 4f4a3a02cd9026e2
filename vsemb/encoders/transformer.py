"""The Transformer sentence encoder, built from keras-hub layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.configured import build_layers, uniform
from vsemb.encoders.pooling import PooledSentenceEncoder, Pooling
from vsemb.encoders.text_encoder import TextSpec, WordEmbedding, WordEncoderPart, padding_mask
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Positive, Share, Size, at_least, between

Tensor = Any

# As BERT and CLIP start their tables of positions.
_POSITION_DEVIATION = 0.02


@keras.saving.register_keras_serializable("vsemb")
class TransformerSentenceEncoder(PooledSentenceEncoder):
    """Encode a sentence: word and position vectors -> Transformer blocks -> pooling -> (if sizes differ) linear map.

    A block consists of multi-head self-attention and a two-layer network with a GELU, each with a residual connection
    and a layer normalization (`keras_hub.layers.TransformerEncoder`). Every word attends to all words of its text, but
    not to padding. Word vectors of another size than `units` are first mapped linearly; then the position embedding is
    added (`keras_hub.layers.PositionEmbedding`).

    Dropout is applied to the sum of word and position vectors, to the attention weights and both outputs of every
    block, and to the pooled entries.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding; None for the size of the pooled states.
        length: maximum number of words, at least 2; longer texts are truncated.
        units: size of the state of a word.
        layers: number of blocks.
        heads: number of attention heads; `units` must be a multiple of it.
        feed_forward: size of the inner layer of a block's network; None for 4 times `units`.
        pre_norm: whether the inputs of each part of a block are normalized, with one more normalization after the last
            block (CLIP). Otherwise the outputs are normalized (Vaswani et al., BERT), which needs a learning rate
            warm-up.
        pooling: `"last"` word, `"mean"`, `"max"` or `"mean+max"`. There is not a separate token for the sentence.
        dropout: share of entries set to 0 in training.
        init_scale: matrices of blocks are initialized uniformly in [-init_scale, init_scale]; None for Glorot's range.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding, on the right.
        training: whether dropout is applied.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an unknown pooling, sizes below 1, or heads that do not divide `units`.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> encoder = TransformerSentenceEncoder(words, dim=6, length=16, units=8, layers=1, heads=2)
    >>> encoder(np.array([[2, 3, 0]])).shape
    TensorShape([1, 6])

    References:
        Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
        Devlin et al. BERT. NAACL 2019, arXiv:1810.04805.
        Radford et al. Learning Transferable Visual Models From Natural Language Supervision. ICML 2021,
        arXiv:2103.00020.
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: Count | None = 512,
        *,
        length: Annotated[int, at_least(2)] = 64,
        units: Count = 512,
        layers: Count = 2,
        heads: Count = 8,
        feed_forward: Count | None = None,
        pre_norm: bool = True,
        pooling: Pooling = "mean",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        if units % heads:
            raise invalid_argument("heads", heads, f"a divisor of units={units}")
        # Only here, since it takes seconds and other encoders do without.
        from keras_hub.layers import PositionEmbedding, TransformerEncoder

        options: dict[str, Any] = {"dtype": self.dtype_policy}
        self.widening = None if words.dim == units else keras.layers.Dense(units, name="widening", **options)
        kernel = uniform(init_scale, "glorot_uniform")
        blocks = [
            TransformerEncoder(
                feed_forward or 4 * units,
                heads,
                dropout=dropout,
                activation="gelu",
                kernel_initializer=kernel,
                normalize_first=pre_norm,
                name=f"block_{number}",
                **options,
            )
            for number in range(layers)
        ]
        start = keras.initializers.TruncatedNormal(stddev=_POSITION_DEVIATION)
        self.places = PositionEmbedding(length, start, name="places", **options)
        self.blocks = blocks
        self.normalization = None
        if pre_norm:
            self.normalization = keras.layers.LayerNormalization(epsilon=1e-5, name="normalization", **options)
        self._input_dropout = keras.layers.Dropout(dropout, **options)
        self.add_head(units)

    def build(self, input_shape: Any) -> None:
        states = (*input_shape[:2], self.units)
        build_layers(
            (self.words, input_shape),
            (self.widening, self.words.compute_output_shape(input_shape)),
            (self.places, states),
            *((block, states) for block in self.blocks),
            (self.normalization, states),
            (self.projection, (input_shape[0], self.pooled_size)),
        )

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        token_ids = token_ids[:, : self.length]
        if token_ids.shape[1] == 1:
            # Keras warns of a softmax over a single entry, which is right here.
            token_ids = ops.pad(token_ids, [[0, 0], [0, 1], *[[0, 0]] * (len(token_ids.shape) - 2)])
        mask = padding_mask(token_ids)
        states = self.words(token_ids, training=training)
        if self.widening is not None:
            states = self.widening(states)
        states = self._input_dropout(states + self.places(states), training=training)
        for block in self.blocks:
            states = block(states, padding_mask=mask, training=training)
        if self.normalization is not None:
            states = self.normalization(states)
        return self.head(self._pool(states, mask), training)


@dataclass(frozen=True)
class Transformer(WordEncoderPart, kind="transformer"):
    """A Transformer encoder built from keras-hub layers.

    Attributes:
        units: size of a token's vector inside the blocks.
        layers: number of blocks.
        heads: attention heads per block; `units` must be a multiple of it.
        feed_forward: size of the inner layer of a block; null for 4 times `units`.
        pre_norm: whether a block normalizes its inputs instead of its outputs.
        pooling: `last` (the last word), `mean`, `max` or `mean+max`.
        dropout: share of entries dropped in training, pooled and within the blocks.
        init_scale: weights of the blocks are uniform in +- this; null for Keras' defaults.
    """

    layer: ClassVar[type[keras.layers.Layer]] = TransformerSentenceEncoder

    units: Size = 512
    layers: Annotated[int, between(1, 64)] = 2
    heads: Size = 8
    feed_forward: Size | None = None
    pre_norm: bool = True
    pooling: Literal["last", "mean", "max", "mean+max"] = "mean"
    dropout: Share = 0.0
    init_scale: Positive | None = None

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        return {**self.arguments(), "length": spec.length}
