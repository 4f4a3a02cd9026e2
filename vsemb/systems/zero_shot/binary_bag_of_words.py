"""A bag of words as the paper has it: which words are there, and one linear layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.text_encoder import UNKNOWN_ID, TextEncoderPart, TextSpec, WordEmbedding
from vsemb.ops.pooling import masked_sum

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class BinaryBagOfWords(Configured, keras.layers.Layer):
    """phi(t) = W I(t) + b, I(t) in {0, 1}^|V| the words of t (Reed et al. 2016, section 4.4).

    Computed as the sum of the rows of W of the distinct words, so that no indicator vector is made.
    The paper's vocabulary has every word; here unknown ones have no part in I(t), since training may never
    have seen any. Behind a linear layer the vocabulary's words are all there is: a text without a known
    word becomes b.

    Args:
        vocabulary_size: number of ids, padding (0) and unknown (1) included.
        dim: size of the embedding.
        **kwargs: arguments of `keras.layers.Layer`.

    Attributes:
        words: W, a `WordEmbedding` of size `dim`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether a gradient will be taken.

    Returns:
        (batch, dim).

    Example:

    >>> import numpy as np
    >>> encoder = BinaryBagOfWords(vocabulary_size=10, dim=4)
    >>> once, twice = encoder(np.array([[2, 3, 0], [3, 2, 3]]))
    >>> bool(ops.all(once == twice))
    True
    """

    def __init__(self, vocabulary_size: int, dim: int = 1024, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        # As a dense layer's kernel: Glorot's range, and a gradient of its shape.
        limit = math.sqrt(6 / (vocabulary_size + dim))
        self.words = WordEmbedding(vocabulary_size, dim, init_scale=limit, dense_gradient=True, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape))
        self.bias = self.add_weight(shape=(self.dim,), initializer="zeros", name="bias")

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        ids = ops.sort(token_ids, axis=1)  # Equal words stand side by side.
        previous = ops.pad(ids[:, :-1], [[0, 0], [1, 0]])
        counted = ops.logical_and(ops.greater(ids, UNKNOWN_ID), ops.not_equal(ids, previous))
        return masked_sum(self.words(ids, training=training), counted) + ops.cast(self.bias, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class BinaryBagOfWordsPart(TextEncoderPart, kind="binary-bag-of-words"):
    """Which words are there, and a linear map."""

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> BinaryBagOfWords:
        # By itself it has an entry a word, far more than a layer behind it should read.
        return BinaryBagOfWords(spec.vocabulary_size, 1024 if dim is None else dim, dtype=dtype)
