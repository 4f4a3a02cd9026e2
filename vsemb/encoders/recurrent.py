"""Recurrent sentence encoders: GRU, LSTM and the peephole LSTM, in one or both directions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import keras

from vsemb.encoders.peephole import PeepholeLSTMCell
from vsemb.encoders.pooling import POOLINGS, SequencePooling
from vsemb.encoders.recurrent_layers import GRU, LSTM
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec
from vsemb.encoders.words import WordEmbedding, WordVectors, padding_mask
from vsemb.errors import unknown_name
from vsemb.parts import Positive, Share, Size

Tensor = Any

CELLS = ("gru", "lstm", "peephole-lstm")
DIRECTIONS = ("forward", "concat", "average")


@keras.saving.register_keras_serializable("vsemb")
class RecurrentSentenceEncoder(keras.layers.Layer):
    """Words -> recurrent layer -> pooling -> (where sizes differ) a linear map to `dim`.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding.
        cell: `"gru"` (the Toronto code, VSE++), `"lstm"` (Keras'), or `"peephole-lstm"` (equations
            1-5 of Kiros et al. 2014).
        units: size of the recurrent state, of each direction.
        directions: `"forward"`; or both, `"concat"` or `"average"`d.
        pooling: `"last"` state (the papers), `"mean"`, `"max"` or `"mean+max"`.
        dropout: in training, the share of pooled entries set to 0.
        init_scale: recurrent weights start uniform in [-init_scale, init_scale] (Kiros et al.: 0.08);
            None takes Keras' defaults (Glorot and orthogonal).
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding, on the right.
        training: whether dropout acts.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an unknown cell, direction or pooling.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> RecurrentSentenceEncoder(words, dim=8, units=8)(np.array([[2, 3, 0]])).shape
    TensorShape([1, 8])
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int = 1024,
        *,
        cell: str = "gru",
        units: int = 1024,
        directions: str = "forward",
        pooling: str = "last",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value, allowed in (
            ("cell", cell, CELLS),
            ("directions", directions, DIRECTIONS),
            ("pooling", pooling, POOLINGS),
        ):
            if value not in allowed:
                raise unknown_name(name, value, allowed)
        self.words = words
        self.dim = dim
        self.cell = cell
        self.units = units
        self.directions = directions
        self.pooling = pooling
        self.dropout = dropout
        self.init_scale = init_scale
        self.recurrent = self._recurrent_layer()
        self._pool = SequencePooling(pooling, dtype=self.dtype_policy)
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.projection = None
        if self._pooled_size() != dim:
            self.projection = keras.layers.Dense(dim, dtype=self.dtype_policy, name="projection")

    def _recurrent_layer(self) -> keras.layers.Layer:
        # The last state comes out of Keras' own masking, also for the backward direction, whose last
        # state stands at the first word.
        sequences = self.pooling != "last"
        options: dict[str, Any] = {"dtype": self.dtype_policy}
        if self.init_scale is not None:
            uniform = keras.initializers.RandomUniform(-self.init_scale, self.init_scale)
            options["kernel_initializer"] = uniform
            if self.cell != "peephole-lstm":
                options["recurrent_initializer"] = uniform.clone()
        if self.cell == "gru":
            layer = GRU(self.units, return_sequences=sequences, **options)
        elif self.cell == "lstm":
            layer = LSTM(self.units, return_sequences=sequences, **options)
        else:
            layer = keras.layers.RNN(
                PeepholeLSTMCell(self.units, **options), return_sequences=sequences, dtype=self.dtype_policy
            )
        if self.directions == "forward":
            return layer
        merge = {"concat": "concat", "average": "ave"}[self.directions]
        return keras.layers.Bidirectional(layer, merge_mode=merge, dtype=self.dtype_policy)

    def _pooled_size(self) -> int:
        size = self.units * (2 if self.directions == "concat" else 1)
        return size * len(POOLINGS[self.pooling])

    def build(self, input_shape: Any) -> None:
        if not self.words.built:
            self.words.build(input_shape)
        if not self.recurrent.built:
            self.recurrent.build((*input_shape, self.words.dim))
        if self.projection is not None and not self.projection.built:
            self.projection.build((input_shape[0], self._pooled_size()))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        mask = padding_mask(token_ids)
        states = self.recurrent(self.words(token_ids, training=training), mask=mask, training=training)
        pooled = states if self.pooling == "last" else self._pool(states, mask)
        pooled = self._dropout_layer(pooled, training=training)
        return pooled if self.projection is None else self.projection(pooled)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "words": keras.saving.serialize_keras_object(self.words),
            "dim": self.dim,
            "cell": self.cell,
            "units": self.units,
            "directions": self.directions,
            "pooling": self.pooling,
            "dropout": self.dropout,
            "init_scale": self.init_scale,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RecurrentSentenceEncoder:
        config = {**config, "words": keras.saving.deserialize_keras_object(config["words"])}
        return cls(**config)


@dataclass(frozen=True)
class Recurrent(TextEncoderPart, kind="recurrent"):
    """A recurrent network over word vectors.

    Attributes:
        words: the word vectors.
        cell: `gru`, `lstm` or `peephole-lstm`.
        units: size of the recurrent state of each direction.
        directions: `forward`, or both directions, as `concat` or `average`.
        pooling: of the states: `last`, `mean`, `max` or `mean+max`.
        dropout: share of pooled entries dropped in training.
        init_scale: recurrent weights are uniform in +- this; null for Keras' defaults.
    """

    words: WordVectors = field(default_factory=WordVectors)
    cell: Literal["gru", "lstm", "peephole-lstm"] = "gru"
    units: Size = 1024
    directions: Literal["forward", "concat", "average"] = "forward"
    pooling: Literal["last", "mean", "max", "mean+max"] = "last"
    dropout: Share = 0.0
    init_scale: Positive | None = None

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> RecurrentSentenceEncoder:
        own = self.units * (2 if self.directions == "concat" else 1) * len(POOLINGS[self.pooling])
        return RecurrentSentenceEncoder(
            self.words.build(spec.vocabulary_size, dtype),
            own if dim is None else dim,
            cell=self.cell,
            units=self.units,
            directions=self.directions,
            pooling=self.pooling,
            dropout=self.dropout,
            init_scale=self.init_scale,
            dtype=dtype,
        )

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        self.words.initialize(layer.words, corpus)
