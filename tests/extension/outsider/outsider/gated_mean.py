"""A text encoder: the mean of word vectors, each weighted by a learned gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec, WordEmbedding, WordVectors
from vsemb.parts import Share


@keras.saving.register_keras_serializable("outsider")
class GatedMeanEncoder(keras.layers.Layer):
    """Weights each word by a sigmoid of its vector, takes the mean, and maps it to the embedding."""

    def __init__(self, words: WordEmbedding, dim: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.words = words
        self.dim = dim
        self.gate = keras.layers.Dense(1, activation="sigmoid")
        self.affine = keras.layers.Dense(dim)
        self.dropout = keras.layers.Dropout(dropout)

    def build(self, input_shape: Any) -> None:
        self.words.build(input_shape)
        self.gate.build((*input_shape, self.words.dim))
        self.affine.build((input_shape[0], self.words.dim))

    def call(self, token_ids: Any, training: bool = False) -> Any:
        vectors = self.words(token_ids, training=training)  # (batch, steps, words.dim)
        weights = self.gate(vectors) * ops.cast(token_ids != 0, vectors.dtype)[..., None]
        mean = ops.sum(weights * vectors, axis=1) / (ops.sum(weights, axis=1) + 1e-6)
        return self.affine(self.dropout(mean, training=training))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class GatedMean(TextEncoderPart, kind="gated-mean"):
    """A gated mean of word vectors.

    Attributes:
        words: the word vectors.
        dropout: share of entries of the mean dropped in training.
    """

    words: WordVectors = field(default_factory=WordVectors)
    dropout: Share = 0.0

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> GatedMeanEncoder:
        words = self.words.build(spec.vocabulary_size, dtype)
        return GatedMeanEncoder(words, self.words.dim if dim is None else dim, self.dropout, dtype=dtype)

    def initialize(self, layer: Any, corpus: TextCorpus) -> None:
        self.words.initialize(layer.words, corpus)
