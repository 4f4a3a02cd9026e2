"""A text encoder: the mean of word vectors, each weighted by a learned gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.text_encoder import WordEmbedding, WordEncoderPart, padding_mask
from vsemb.parts import Share


@keras.saving.register_keras_serializable("outsider")
class GatedMeanEncoder(Configured, keras.layers.Layer):
    """Weights each word by a sigmoid of its vector, takes the mean, and maps it to the embedding.

    Args:
        words: the word vectors.
        dim: size of the embedding; None for that of the word vectors.
        dropout: share of entries of the mean dropped in training.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.

    Returns:
        (batch, dim).
    """

    def __init__(self, words: WordEmbedding, dim: int | None = None, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.gate = keras.layers.Dense(1, activation="sigmoid", dtype=self.dtype_policy)
        self.affine = keras.layers.Dense(dim or words.dim, dtype=self.dtype_policy)
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        vectors = (*input_shape, self.words.dim)
        build_layers((self.words, input_shape), (self.gate, vectors), (self.affine, vectors))

    def call(self, token_ids: Any, training: bool = False) -> Any:
        vectors = self.words(token_ids, training=training)  # (batch, steps, words.dim)
        weights = self.gate(vectors) * ops.cast(padding_mask(token_ids), vectors.dtype)[..., None]
        mean = ops.sum(weights * vectors, axis=1) / (ops.sum(weights, axis=1) + 1e-6)
        return self.affine(self.dropout_layer(mean, training=training))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim or self.words.dim


@dataclass(frozen=True)
class GatedMean(WordEncoderPart, kind="gated-mean"):
    """A gated mean of word vectors.

    Attributes:
        dropout: share of entries of the mean dropped in training.
    """

    layer = GatedMeanEncoder

    dropout: Share = 0.0
