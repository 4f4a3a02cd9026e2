"""The dependency Tree-LSTM of imgcap, and the child-sum Tree-LSTM of Tai et al. 2015."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.encoders.pooling import POOLINGS, SequencePooling
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec
from vsemb.encoders.words import WordEmbedding, WordVectors, padding_mask
from vsemb.errors import invalid_argument, unknown_name
from vsemb.parts import Positive, Share, Size, between
from vsemb.systems.trees.ops import root_states, tree_lstm_states

Tensor = Any

CHILDREN = ("slots", "sum")
TREE_POOLINGS = {"root": (root_states,), **{name: POOLINGS[name] for name in ("mean", "max", "mean+max")}}


@keras.saving.register_keras_serializable("vsemb")
class TreeLSTMEncoder(keras.layers.Layer):
    """Words and their heads -> Tree-LSTM -> state of the root -> (where sizes differ) a linear map to `dim`.

    With `children="slots"`, the appendix of the imgcap report, p being `slots`:

    | equation | here |
    | --- | --- |
    | (2) children beyond the p-th of a side share a slot | `vsemb.systems.trees.ops.child_slots` |
    | W^(i), W^(o), W^(u), W^(f) of (5) to (9) | `kernel`, (word dim, 4 units), in the order i, o, u, f |
    | b^(i), b^(o), b^(u), b^(f) | `bias`, (4 units,) |
    | U_k^(i), U_k^(o), U_k^(u) of (7) to (9) | `recurrent_kernel[k - 1]`, columns 0 to 3 units |
    | V_k^(i), V_k^(o), V_k^(u) | `recurrent_kernel[p + k - 1]`, the same columns |
    | U_jk^(l), U_jk^(r) of (5), (6) | `recurrent_kernel[k - 1]`, gates 3 + j - 1 and 3 + p + j - 1 |
    | V_jk^(l), V_jk^(r) | `recurrent_kernel[p + k - 1]`, the same columns |
    | (3) to (9) | `vsemb.systems.trees.ops.tree_lstm_states` |

    The activations are sigmoids, and tanh for u. With `children="sum"`, equations 2 to 8 of Tai et al. 2015,
    and `recurrent_kernel` is (1, units, 4 units): what i, o and u read of the sum of the children's h, and
    what a child's forget gate reads of its own.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding.
        units: size of the states.
        slots: p, places for left children and for right children; not used with `children="sum"`.
        children: `"slots"`, each with its own matrices and forget gate, or `"sum"`.
        pooling: `"root"` (the papers), or `"mean"`, `"max"` or `"mean+max"` over all nodes.
        dropout: in training, the share of pooled entries set to 0.
        init_scale: both kernels start uniform in [-init_scale, init_scale]. None takes Glorot's range of the
            matrix from a word vector to all gates, and of that from the states of all slots side by side to
            all gates. Biases start at 0, those of forget gates at 1.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps, 2) int: of each token its word, 0 = padding, on the right, and the number
            of its head, from 1, 0 for the root.
        training: whether dropout acts.

    Returns:
        (batch, dim). A row that holds no tree (`vsemb.systems.trees.ops.valid_trees`) is embedded as if all its states
        were 0.

    Raises:
        InvalidArgumentError: for an unknown pooling or way with children, and for less than one slot or unit.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> a_dog_barks = np.array([[[4, 2], [7, 3], [5, 0]]])
    >>> TreeLSTMEncoder(words, dim=8, units=8)(a_dog_barks).shape
    TensorShape([1, 8])

    References:
        Tai, Socher, Manning. Improved Semantic Representations From Tree-Structured Long Short-Term Memory
        Networks. ACL 2015.
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int = 1024,
        *,
        units: int = 300,
        slots: int = 2,
        children: str = "slots",
        pooling: str = "root",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value, allowed in (
            ("children", children, CHILDREN),
            ("pooling", pooling, TREE_POOLINGS),
        ):
            if value not in allowed:
                raise unknown_name(name, value, allowed)
        for name, number in (("units", units), ("slots", slots)):
            if number < 1:
                raise invalid_argument(name, number, "an integer >= 1")
        self.words = words
        self.dim = dim
        self.units = units
        self.slots = slots
        self.children = children
        self.pooling = pooling
        self.dropout = dropout
        self.init_scale = init_scale
        # How many nodes and levels a batch has is known when it runs, which XLA cannot compile.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self._pool = None if pooling == "root" else SequencePooling(pooling, dtype=self.dtype_policy)
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.projection = None
        if self._pooled_size() != dim:
            self.projection = keras.layers.Dense(dim, dtype=self.dtype_policy, name="projection")

    def _pooled_size(self) -> int:
        return self.units * len(TREE_POOLINGS[self.pooling])

    def build(self, input_shape: Any) -> None:
        if not self.words.built:
            self.words.build(input_shape[:-1])
        slots = 2 * self.slots if self.children == "slots" else 1
        gates = (3 + slots) * self.units
        self.kernel = self.add_weight(
            shape=(self.words.dim, 4 * self.units),
            initializer=self._uniform(self.words.dim, 4 * self.units),
            name="kernel",
        )
        self.recurrent_kernel = self.add_weight(
            shape=(slots, self.units, gates),
            initializer=self._uniform(slots * self.units, gates),
            name="recurrent_kernel",
        )
        self.bias = self.add_weight(shape=(4 * self.units,), initializer=_forget_is_one, name="bias")
        if self.projection is not None and not self.projection.built:
            self.projection.build((input_shape[0], self._pooled_size()))

    def _uniform(self, rows: int, columns: int) -> keras.initializers.Initializer:
        limit = math.sqrt(6 / (rows + columns)) if self.init_scale is None else self.init_scale
        return keras.initializers.RandomUniform(-limit, limit)

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        word_ids, heads = token_ids[..., 0], token_ids[..., 1]
        mask = padding_mask(word_ids)
        vectors = self.words(word_ids, training=training)
        # One product of two matrices: one for each sentence is several times slower, and its gradient more.
        rows = ops.matmul(ops.reshape(vectors, (-1, self.words.dim)), self.kernel) + self.bias
        inputs = ops.reshape(rows, (*ops.shape(word_ids), 4 * self.units))
        states = tree_lstm_states(inputs, self.recurrent_kernel, heads, mask, child_sum=self.children == "sum")
        pooled = root_states(states, heads, mask) if self._pool is None else self._pool(states, mask)
        pooled = self._dropout_layer(pooled, training=training)
        return pooled if self.projection is None else self.projection(pooled)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "words": keras.saving.serialize_keras_object(self.words),
            "dim": self.dim,
            "units": self.units,
            "slots": self.slots,
            "children": self.children,
            "pooling": self.pooling,
            "dropout": self.dropout,
            "init_scale": self.init_scale,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TreeLSTMEncoder:
        config = {**config, "words": keras.saving.deserialize_keras_object(config["words"])}
        return cls(**config)


def _forget_is_one(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Biases of the gates i, o, u and f."""
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(3 * units, dtype), ops.ones(units, dtype)])


@dataclass(frozen=True)
class TreeEncoderPart(TextEncoderPart):
    """What both Tree-LSTMs have.

    Attributes:
        words: the word vectors.
        units: size of a node's state.
        pooling: of the nodes' states: that of the `root`, or `mean`, `max` or `mean+max` over all.
        dropout: share of pooled entries dropped in training.
        init_scale: recurrent weights are uniform in +- this; null for Glorot's range.
    """

    accepts: ClassVar[str] = "trees"
    children: ClassVar[str]

    words: WordVectors = field(default_factory=WordVectors)
    units: Size = 300
    pooling: Literal["root", "mean", "max", "mean+max"] = "root"
    dropout: Share = 0.0
    init_scale: Positive | None = None

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> TreeLSTMEncoder:
        return TreeLSTMEncoder(
            self.words.build(spec.vocabulary_size, dtype),
            self.units * len(TREE_POOLINGS[self.pooling]) if dim is None else dim,
            units=self.units,
            children=self.children,
            pooling=self.pooling,
            dropout=self.dropout,
            init_scale=self.init_scale,
            dtype=dtype,
            **self.options(),
        )

    def options(self) -> dict[str, Any]:
        """Returns further arguments of the layer."""
        return {}

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        self.words.initialize(layer.words, corpus)


@dataclass(frozen=True)
class TreeLSTM(TreeEncoderPart, kind="tree-lstm"):
    """The dependency Tree-LSTM of imgcap, with matrices for each child's place.

    Attributes:
        slots: places for left children and for right children; further ones share the last.
    """

    children: ClassVar[str] = "slots"

    slots: Annotated[int, between(1, 16)] = 2

    def options(self) -> dict[str, Any]:
        return {"slots": self.slots}


@dataclass(frozen=True)
class ChildSumTreeLSTM(TreeEncoderPart, kind="child-sum-tree-lstm"):
    """The child-sum Tree-LSTM of Tai et al. 2015, which adds up the states of a node's children."""

    children: ClassVar[str] = "sum"
