"""The dependency Tree-LSTM of imgcap, and the child-sum Tree-LSTM of Tai et al. 2015."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import keras
from keras import ops

from vsemb.configured import build_layers, uniform
from vsemb.encoders.pooling import PooledSentenceEncoder
from vsemb.encoders.text_encoder import TextSpec, WordEmbedding, WordEncoderPart, padding_mask
from vsemb.parts import Count, Positive, Share, Size, between
from vsemb.systems.trees.ops import root_states, tree_lstm_states

Tensor = Any

Children = Literal["slots", "sum"]
TreePooling = Literal["root", "mean", "max", "mean+max"]


@keras.saving.register_keras_serializable("vsemb")
class TreeLSTMEncoder(PooledSentenceEncoder):
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
        dim: size of the sentence embedding; None for that of what is pooled.
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
        dim: int | None = 1024,
        *,
        units: Count = 300,
        slots: Count = 2,
        children: Children = "slots",
        pooling: TreePooling = "root",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        # How many nodes and levels a batch has is known when it runs, which XLA cannot compile.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.add_head(units)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape[:-1]))
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
        build_layers((self.projection, (input_shape[0], self.pooled_size)))

    def _uniform(self, rows: int, columns: int) -> keras.initializers.Initializer:
        return uniform(math.sqrt(6 / (rows + columns)) if self.init_scale is None else self.init_scale, None)

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        word_ids, heads = token_ids[..., 0], token_ids[..., 1]
        mask = padding_mask(word_ids)
        vectors = self.words(word_ids, training=training)
        # One product of two matrices: one for each sentence is several times slower, and its gradient more.
        rows = ops.matmul(ops.reshape(vectors, (-1, self.words.dim)), self.kernel) + self.bias
        inputs = ops.reshape(rows, (*ops.shape(word_ids), 4 * self.units))
        states = tree_lstm_states(inputs, self.recurrent_kernel, heads, mask, child_sum=self.children == "sum")
        pooled = root_states(states, heads, mask) if self._pool is None else self._pool(states, mask)
        return self.head(pooled, training)


def _forget_is_one(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Biases of the gates i, o, u and f."""
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(3 * units, dtype), ops.ones(units, dtype)])


@dataclass(frozen=True)
class TreeEncoderPart(WordEncoderPart):
    """What both Tree-LSTMs have.

    Attributes:
        units: size of a node's state.
        pooling: of the nodes' states: that of the `root`, or `mean`, `max` or `mean+max` over all.
        dropout: share of pooled entries dropped in training.
        init_scale: recurrent weights are uniform in +- this; null for Glorot's range.
    """

    accepts: ClassVar[str] = "trees"
    children: ClassVar[str]
    layer: ClassVar[type[keras.layers.Layer]] = TreeLSTMEncoder

    units: Size = 300
    pooling: TreePooling = "root"
    dropout: Share = 0.0
    init_scale: Positive | None = None

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        return {**self.arguments(), "children": self.children}


@dataclass(frozen=True)
class TreeLSTM(TreeEncoderPart, kind="tree-lstm"):
    """The dependency Tree-LSTM of imgcap, with matrices for each child's place.

    Attributes:
        slots: places for left children and for right children; further ones share the last.
    """

    children: ClassVar[str] = "slots"

    slots: Annotated[int, between(1, 16)] = 2


@dataclass(frozen=True)
class ChildSumTreeLSTM(TreeEncoderPart, kind="child-sum-tree-lstm"):
    """The child-sum Tree-LSTM of Tai et al. 2015, which adds up the states of a node's children."""

    children: ClassVar[str] = "sum"
