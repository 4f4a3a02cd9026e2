"""A bag of words, weighted by how rare each word is."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.words import WordEmbedding, padding_mask
from vsemb.errors import invalid_argument
from vsemb.ops.pooling import masked_sum

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class BagOfWordsEncoder(Configured, keras.layers.Layer):
    """Sum of word vectors, each weighted by its inverse document frequency (tf-idf, made linear).

    Rare words say most about which image is meant, and a recurrent network needs long to learn that.

    Args:
        words: the word vectors; their size is the size of the embedding.
        dropout: in training, the share of words left out.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether dropout acts.

    Returns:
        (batch, words.dim).

    Example:

    >>> encoder = BagOfWordsEncoder(WordEmbedding(vocabulary_size=10, dim=4))
    >>> encoder(np.array([[2, 3, 0]])).shape
    TensorShape([1, 4])
    """

    def __init__(self, words: WordEmbedding, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape))
        self.rarity = self.add_weight(
            shape=(self.words.vocabulary_size,), initializer="ones", trainable=False, name="rarity"
        )

    def set_document_frequencies(self, counts: np.ndarray, documents: int) -> None:
        """Sets each word's weight to log((1 + documents) / (1 + count)), scaled to a mean of 1.

        Args:
            counts: (vocabulary_size,) the number of training captions that have the word.
            documents: the number of training captions.

        Raises:
            InvalidArgumentError: for another shape.
        """
        if counts.shape != (self.words.vocabulary_size,):
            raise invalid_argument("counts", counts.shape, f"shape ({self.words.vocabulary_size},)")
        if not self.built:
            self.build((None, None))
        rarity = np.log((1 + documents) / (1 + counts))
        if not counts[1]:
            rarity[1] = 0.0  # Training never sees the unknown word, so its vector means nothing.
        self.rarity.assign(rarity / max(rarity[1:].mean(), 1e-6))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        weights = ops.cast(ops.take(self.rarity, token_ids, axis=0), self.compute_dtype)  # (batch, steps)
        weights = ops.expand_dims(self._dropout_layer(weights, training=training), -1)
        return masked_sum(self.words(token_ids, training=training) * weights, padding_mask(token_ids))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.words.dim
