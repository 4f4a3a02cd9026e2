"""Dependency edges as fragments of a sentence: one vector per relation between two words (DeFrag)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import Configured, build_layers, uniform
from vsemb.encoders.text_encoder import WordEmbedding, WordEncoderPart, padding_mask
from vsemb.parts import Positive, Share
from vsemb.systems.trees.relations import RELATIONS, relation_product

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class DependencyEdgeEncoder(Configured, keras.layers.Layer):
    """One vector per dependency edge, s = f(W_R [W_e w_1; W_e w_2] + b_R) (Karpathy et al. 2014, equation 1).

    An edge (R, w_1, w_2) is a word w_2, its head w_1 and their relation R. f is the ReLU. A sentence of n words has n
    edges: the head of the root is a vector of zeros, so that a single word has a vector, too. An edge does not depend
    on other edges.

    Args:
        words: word vectors, the columns of W_e; fixed in the paper.
        dim: size of s; None for the size of a word vector; default 1000.
        dropout: share of entries of [W_e w_1; W_e w_2] set to 0 in training.
        init_scale: each W_R is initialized uniformly in [-init_scale, init_scale]; None for Glorot's range. Biases
            start at 0.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps, 3) int: word id, 0 = padding on the right; number of the head, 0 for the root; and
            relation, a place in `vsemb.systems.trees.relations.RELATIONS`.
        training: whether dropout is applied.

    Returns:
        (batch, steps, dim), the edge of each word to its head; zeros for padding.

    Example: the last of three steps is padding.

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> a_dog = np.array([[[4, 2, RELATIONS.index("det")], [7, 0, RELATIONS.index("root")], [0, 0, 0]]])
    >>> edges = DependencyEdgeEncoder(words, dim=8)(a_dog)
    >>> edges.shape, bool(ops.any(edges[0, 2] != 0))
    (TensorShape([1, 3, 8]), False)

    References:
        Karpathy, Joulin, Fei-Fei. Deep Fragment Embeddings for Bidirectional Image Sentence Mapping. NIPS 2014.
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int | None = 1000,
        *,
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.dim = dim or words.dim
        # The number of rows per relation depends on the batch, which XLA cannot compile.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape[:-1]))
        rows = 2 * self.words.dim
        glorot = math.sqrt(6 / (rows + self.dim))
        self.kernels = self.add_weight(
            (len(RELATIONS), rows, self.dim), uniform(self.init_scale or glorot, None), name="kernels"
        )
        self.biases = self.add_weight((len(RELATIONS), self.dim), "zeros", name="biases")

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        word_ids, heads, relations = (token_ids[..., number] for number in range(3))
        vectors = self.words(word_ids, training=training)  # (batch, steps, words.dim)
        # Place 0 is the head of the root. Heads are clipped for rows that are not a tree.
        places = ops.expand_dims(ops.clip(ops.cast(heads, "int32"), 0, ops.shape(word_ids)[1]), -1)
        above = ops.take_along_axis(ops.pad(vectors, ((0, 0), (1, 0), (0, 0))), places, axis=1)
        pairs = self._dropout_layer(ops.concatenate([above, vectors], axis=-1), training=training)
        flat = ops.clip(ops.reshape(ops.cast(relations, "int32"), (-1,)), 0, len(RELATIONS) - 1)
        multiply = relation_product(flat, len(RELATIONS))
        kernels = ops.cast(self.kernels, self.compute_dtype)
        edges = multiply(ops.reshape(pairs, (-1, 2 * self.words.dim)), kernels) + ops.take(self.biases, flat, axis=0)
        edges = ops.reshape(ops.relu(edges), (*ops.shape(word_ids), self.dim))
        return ops.where(ops.expand_dims(padding_mask(word_ids), -1), edges, ops.zeros_like(edges))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape[:-1], self.dim)


@dataclass(frozen=True)
class DependencyEdges(WordEncoderPart, kind="dependency-edges"):
    """One vector per edge of the dependency tree (Karpathy et al. 2014, equation 1).

    Attributes:
        dropout: share of entries of the two word vectors dropped in training.
        init_scale: matrices start uniform in +- this; null for Glorot's range.
    """

    accepts: ClassVar[tuple[str, ...]] = ("labelled-trees",)
    produces: ClassVar[str] = "multi_vector"
    layer: ClassVar[type[keras.layers.Layer]] = DependencyEdgeEncoder

    dropout: Share = 0.0
    init_scale: Positive | None = None
