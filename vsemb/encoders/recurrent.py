"""Recurrent sentence encoders: GRU, LSTM and the peephole LSTM, in one or both directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras

from vsemb.configured import build_layers, uniform
from vsemb.encoders.cells import PeepholeLSTMCell
from vsemb.encoders.pooling import PooledSentenceEncoder, Pooling
from vsemb.encoders.recurrent_layers import GRU, LSTM
from vsemb.encoders.words import WordEmbedding, WordEncoderPart, padding_mask
from vsemb.parts import Positive, Share, Size

Tensor = Any

Cell = Literal["gru", "lstm", "peephole-lstm"]
Directions = Literal["forward", "concat", "average"]


@keras.saving.register_keras_serializable("vsemb")
class RecurrentSentenceEncoder(PooledSentenceEncoder):
    """Words -> recurrent layer -> pooling -> (where sizes differ) a linear map to `dim`.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding; None for that of what is pooled.
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
        dim: int | None = 1024,
        *,
        cell: Cell = "gru",
        units: int = 1024,
        directions: Directions = "forward",
        pooling: Pooling = "last",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.recurrent = self._recurrent_layer()
        self.add_head(2 * units if directions == "concat" else units)

    def _recurrent_layer(self) -> keras.layers.Layer:
        # The last state comes out of Keras' own masking, also for the backward direction, whose last
        # state stands at the first word.
        sequences = self.pooling != "last"
        options: dict[str, Any] = {"dtype": self.dtype_policy}
        if self.init_scale is not None:
            options["kernel_initializer"] = uniform(self.init_scale, None)
            if self.cell != "peephole-lstm":
                options["recurrent_initializer"] = options["kernel_initializer"].clone()
        if self.cell == "peephole-lstm":
            cell = PeepholeLSTMCell(self.units, **options)
            layer = keras.layers.RNN(cell, return_sequences=sequences, dtype=self.dtype_policy)
        else:
            layer = {"gru": GRU, "lstm": LSTM}[self.cell](self.units, return_sequences=sequences, **options)
        if self.directions == "forward":
            return layer
        merge = {"concat": "concat", "average": "ave"}[self.directions]
        return keras.layers.Bidirectional(layer, merge_mode=merge, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers(
            (self.words, input_shape),
            (self.recurrent, (*input_shape, self.words.dim)),
            (self.projection, (input_shape[0], self.pooled_size)),
        )

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        mask = padding_mask(token_ids)
        states = self.recurrent(self.words(token_ids, training=training), mask=mask, training=training)
        pooled = states if self.pooling == "last" else self._pool(states, mask)
        return self.head(pooled, training)


@dataclass(frozen=True)
class Recurrent(WordEncoderPart, kind="recurrent"):
    """A recurrent network over word vectors.

    Attributes:
        cell: `gru`, `lstm` or `peephole-lstm`.
        units: size of the recurrent state of each direction.
        directions: `forward`, or both directions, as `concat` or `average`.
        pooling: of the states: `last`, `mean`, `max` or `mean+max`.
        dropout: share of pooled entries dropped in training.
        init_scale: recurrent weights are uniform in +- this; null for Keras' defaults.
    """

    layer: ClassVar[type[keras.layers.Layer]] = RecurrentSentenceEncoder

    cell: Cell = "gru"
    units: Size = 1024
    directions: Directions = "forward"
    pooling: Literal["last", "mean", "max", "mean+max"] = "last"
    dropout: Share = 0.0
    init_scale: Positive | None = None
