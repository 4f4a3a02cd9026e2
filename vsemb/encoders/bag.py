"""Bag-of-words encoders: sums and means of word vectors, independent of word order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.pooling import Pooling, SequencePooling, masked_sum, step_terms
from vsemb.encoders.text_encoder import TextSpec, WordEmbedding, WordEncoderPart, padding_mask, word_ids
from vsemb.errors import invalid_argument

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class BagOfWordsEncoder(Configured, keras.layers.Layer):
    """Sum of word vectors, weighted by inverse document frequency (linear tf-idf).

    Rare words are the most informative about an image, which a recurrent network learns only slowly.

    Args:
        words: the word vectors; their size is the size of the embedding.
        dropout: share of words dropped in training.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether dropout is applied.

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
        """Set each word's weight to log((1 + documents) / (1 + count)), scaled to a mean of 1.

        Args:
            counts: (vocabulary_size,) the number of training captions that contain each word.
            documents: the number of training captions.

        Raises:
            InvalidArgumentError: for another shape.
        """
        if counts.shape != (self.words.vocabulary_size,):
            raise invalid_argument("counts", counts.shape, f"shape ({self.words.vocabulary_size},)")
        if not self.built:
            self.build((None, None))
        rarity = np.log((1 + documents) / (1 + counts))
        if self.words.composes:
            rarity[1] = np.log(1 + documents)  # Unknown words are many, and each of them is rare.
        elif not counts[1]:
            rarity[1] = 0.0  # Training never sees the unknown word, so its vector means nothing.
        self.rarity.assign(rarity / max(rarity[1:].mean(), 1e-6))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        weights = ops.cast(ops.take(self.rarity, word_ids(token_ids), axis=0), self.compute_dtype)  # (batch, steps)
        weights = ops.expand_dims(self._dropout_layer(weights, training=training), -1)
        return masked_sum(self.words(token_ids, training=training) * weights, padding_mask(token_ids))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.words.dim


@keras.saving.register_keras_serializable("vsemb")
class LinearSentenceEncoder(Configured, keras.layers.Layer):
    """Sum or mean of word vectors, v = sum of w_i (Kiros et al. 2014, section 3.2; the mean is their DeViSE-like
    baseline).

    Use it for vector arithmetic, which works best if a sentence is exactly the sum of its words.

    Args:
        words: the word vectors.
        pooling: `"sum"` or `"mean"`.
        dim: size of the embedding, with a linear map after pooling, as in the word2vec average of Reed et al. 2016,
            section 4.4. None for no map; the embedding then has the size of the word vectors.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether dropout is applied.

    Returns:
        (batch, dim), or (batch, words.dim) without `dim`.

    Example:

    >>> import numpy as np
    >>> encoder = LinearSentenceEncoder(WordEmbedding(vocabulary_size=10, dim=4))
    >>> encoder(np.array([[2, 3, 0]])).shape
    TensorShape([1, 4])
    """

    def __init__(self, words: WordEmbedding, pooling: Pooling = "sum", dim: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self._pool = SequencePooling(pooling, dtype=self.dtype_policy)
        self.projection = None
        if dim is not None:
            self.projection = keras.layers.Dense(dim, dtype=self.dtype_policy, name="projection")

    def build(self, input_shape: Any) -> None:
        pooled = self._pool.compute_output_shape(self.words.compute_output_shape(input_shape))
        build_layers((self.words, input_shape), (self.projection, pooled))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        pooled = self._pool(self.words(token_ids, training=training), padding_mask(token_ids))
        return pooled if self.projection is None else self.projection(pooled)

    def step_terms(self, token_ids: Tensor) -> Tensor:
        """Split the embeddings into terms of the words, see `vsemb.encoders.pooling.step_terms`."""
        return step_terms(self.words(token_ids), padding_mask(token_ids), self.pooling, self.projection)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        pooled = self._pool.compute_output_shape(self.words.compute_output_shape(input_shape))
        return pooled if self.projection is None else (pooled[0], self.dim)


@dataclass(frozen=True)
class Linear(WordEncoderPart, kind="linear"):
    """Sum or mean of word vectors, with an optional linear map.

    Attributes:
        pooling: `sum` or `mean` over a sentence's words.
        projection: whether a linear map follows the pooling; without it, word vectors must have the size of the
            embedding.
    """

    pooling: Literal["sum", "mean"] = "sum"
    projection: bool = False

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> LinearSentenceEncoder:
        words = self.words.build(spec, dtype)
        if self.projection:
            return LinearSentenceEncoder(words, self.pooling, dim or self.words.dim, dtype=dtype)
        if dim not in (None, self.words.dim):
            fix = "Or set text.encoder.projection=true."
            raise invalid_argument("text.encoder.words.dim", self.words.dim, f"{dim}, the embedding's size", fix)
        return LinearSentenceEncoder(words, self.pooling, dtype=dtype)
