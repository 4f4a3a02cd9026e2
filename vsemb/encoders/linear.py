"""The linear sentence encoder: a sum or mean of word vectors."""

from __future__ import annotations

from typing import Any

import keras

from vsemb.encoders.pooling import SequencePooling
from vsemb.encoders.words import WordEmbedding, padding_mask

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class LinearSentenceEncoder(keras.layers.Layer):
    """v = sum of w_i (Kiros et al. 2014, section 3.2; the DeViSE-like baseline takes the mean).

    Vector arithmetic works best in this space, since a sentence is exactly the sum of its words.

    Args:
        words: the word vectors; their size is the size of the embedding.
        pooling: `"sum"` or `"mean"`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether dropout acts.

    Returns:
        (batch, words.dim).

    Example:

    >>> import numpy as np
    >>> encoder = LinearSentenceEncoder(WordEmbedding(vocabulary_size=10, dim=4))
    >>> encoder(np.array([[2, 3, 0]])).shape
    TensorShape([1, 4])
    """

    def __init__(self, words: WordEmbedding, pooling: str = "sum", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.words = words
        self.pooling = pooling
        self._pool = SequencePooling(pooling, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        if not self.words.built:
            self.words.build(input_shape)

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        return self._pool(self.words(token_ids, training=training), padding_mask(token_ids))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return self._pool.compute_output_shape((*input_shape, self.words.dim))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "words": keras.saving.serialize_keras_object(self.words),
            "pooling": self.pooling,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearSentenceEncoder:
        config = {**config, "words": keras.saving.deserialize_keras_object(config["words"])}
        return cls(**config)
