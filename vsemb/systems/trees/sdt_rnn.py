"""The semantic dependency tree recursive network (SDT-RNN) of Socher et al. 2014."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.configured import build_layers, uniform
from vsemb.encoders.pooling import PooledSentenceEncoder
from vsemb.encoders.text_encoder import WordEmbedding, padding_mask
from vsemb.parts import Count
from vsemb.systems.trees.relations import RELATIONS, relation_product
from vsemb.systems.trees.tree_lstm import TreeEncoderPart, TreePooling, root_states, valid_trees

Tensor = Any


def sdt_rnn_states(inputs: Tensor, recurrent: Tensor, heads: Tensor, relations: Tensor, mask: Tensor) -> Tensor:
    """Compute the states of an SDT-RNN at all nodes (Socher et al. 2014).

        h_i = tanh((x_i + sum over children j of l(j) h_j W_rel(j)) / l(i))

    l(i) is the number of words of the subtree of i, and rel(j) the relation of j to its head.

    Each round computes all nodes from the states of the round before. A node of height n is correct after n + 1 rounds,
    so the number of rounds is the number of levels of the deepest tree.

    Args:
        inputs: (batch, steps, units) float32 or float64, W_v times the word vector of each token.
        recurrent: (relations, units, units) of the same dtype.
        heads: (batch, steps) int, as in `vsemb.systems.trees.tree_lstm.valid_trees`.
        relations: (batch, steps) int, 0 to the number of matrices - 1.
        mask: (batch, steps) bool.

    Returns:
        (batch, steps, units); 0 at padding and in rows that are not a tree.

    Example: `a dog`, where `a` hangs on `dog`. The root is tanh((x + 1 * 2 tanh(x)) / 2) with x = 1.

    >>> tokens = ops.ones((1, 2, 1)), 2 * ops.ones((1, 1, 1)), ops.convert_to_tensor([[2, 0]])
    >>> states = sdt_rnn_states(*tokens, ops.zeros((1, 2), "int32"), ops.ones((1, 2), "bool"))
    >>> [round(float(state), 3) for state in states[0, :, 0]]
    [0.762, 0.852]
    """
    units, count = inputs.shape[-1], recurrent.shape[0]
    valid, depth = valid_trees(heads, mask)
    mask = ops.cast(mask, "bool") & ops.expand_dims(valid, 1)
    heads, depth = ops.where(mask, ops.cast(heads, "int32"), 0), ops.where(mask, depth, 0)
    steps = ops.shape(heads)[1]
    number = ops.arange(1, steps + 1, dtype="int32")
    # (batch, heads, children)
    is_child = ops.cast(ops.equal(ops.expand_dims(heads, 1), ops.expand_dims(number, 1)), inputs.dtype)
    keep = ops.expand_dims(ops.cast(mask, inputs.dtype), -1)
    # Other backends differentiate loops of a fixed length only.
    in_tensorflow = keras.backend.backend() == "tensorflow"
    rounds = ops.max(depth, initial=0) + 1 if in_tensorflow else steps
    sizes = ops.fori_loop(0, rounds, lambda _, sizes: keep + ops.matmul(is_child, sizes), keep)
    multiply = relation_product(ops.reshape(ops.cast(relations, "int32"), (-1,)), count)

    def compute(_: Tensor, states: Tensor) -> Tensor:
        products = ops.reshape(multiply(ops.reshape(states, (-1, units)), recurrent), ops.shape(states))
        below = ops.matmul(is_child, sizes * products)
        return keep * ops.tanh((inputs + below) / ops.maximum(sizes, 1))

    return ops.fori_loop(0, rounds, compute, ops.zeros_like(inputs))


@keras.saving.register_keras_serializable("vsemb")
class SDTRNNEncoder(PooledSentenceEncoder):
    """Words, heads and relations -> SDT-RNN -> state of the root -> (if sizes differ) a linear map to `dim`.

    Socher et al. 2014, with a matrix per relation between a word and its head:

    | equation | here |
    | --- | --- |
    | W_v x_i | `kernel`, (word dim, units) |
    | W_rel of a relation | `recurrent_kernel[relation]`, (units, units) |
    | h_i, tanh of the mean over the words of the subtree | `vsemb.systems.trees.sdt_rnn.sdt_rnn_states` |
    | the sentence vector, the h of the root | `pooling="root"` |

    These equations are the paper's, where sums have no bias. Initialization, the other poolings and the map to `dim`
    are choices made here.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding; None for the size of the pooled states; default 1024.
        units: size of the states; default 300.
        pooling: `"root"` (as in the paper; the default), or `"mean"`, `"max"` or `"mean+max"` over all nodes.
        dropout: share of pooled entries dropped in training, in [0, 1).
        init_scale: all matrices start uniform in [-init_scale, init_scale]; None for Glorot's range.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps, 3) int: word id, 0 = padding on the right; number of the head, 0 for the root; and
            relation, a place in `vsemb.systems.trees.relations.RELATIONS`.
        training: whether dropout acts.

    Returns:
        (batch, dim). A row that is not a tree is embedded as if all its states were 0.

    Raises:
        InvalidArgumentError: for an unknown `pooling`, or fewer than 1 unit.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> a_dog = np.array([[[4, 2, RELATIONS.index("det")], [7, 0, RELATIONS.index("root")]]])
    >>> SDTRNNEncoder(words, dim=8, units=6)(a_dog).shape
    TensorShape([1, 8])

    References:
        Socher, Karpathy, Le, Manning, Ng. Grounded Compositional Semantics for Finding and Describing Images with
        Sentences. TACL 2014.
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int | None = 1024,
        *,
        units: Count = 300,
        pooling: TreePooling = "root",
        dropout: float = 0.0,
        init_scale: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        # The number of rows per relation depends on the batch, which XLA cannot compile.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.add_head(units)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape[:-1]))
        self.kernel = self.add_weight((self.words.dim, self.units), self._uniform(self.words.dim), name="kernel")
        self.recurrent_kernel = self.add_weight(
            (len(RELATIONS), self.units, self.units), self._uniform(self.units), name="recurrent_kernel"
        )
        build_layers((self.projection, (input_shape[0], self.pooled_size)))

    def _uniform(self, rows: int) -> keras.initializers.Initializer:
        return uniform(self.init_scale or math.sqrt(6 / (rows + self.units)), None)

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        word_ids, heads, relations = (token_ids[..., number] for number in range(3))
        mask = padding_mask(word_ids)
        vectors = self.words(word_ids, training=training)
        inputs = ops.matmul(vectors, self.kernel)
        relations = ops.clip(relations, 0, len(RELATIONS) - 1)
        # Half precision is computed in float32, as in the Tree-LSTM.
        wide = "float64" if self.compute_dtype == "float64" else "float32"
        states = sdt_rnn_states(ops.cast(inputs, wide), ops.cast(self.recurrent_kernel, wide), heads, relations, mask)
        states = ops.cast(states, self.compute_dtype)
        pooled = root_states(states, heads, mask) if self._pool is None else self._pool(states, mask)
        return self.head(pooled, training)


@dataclass(frozen=True)
class SDTRNN(TreeEncoderPart, kind="sdt-rnn"):
    """The semantic dependency tree network of Socher et al. 2014, with a matrix per relation."""

    accepts: ClassVar[tuple[str, ...]] = ("labelled-trees",)
    layer: ClassVar[type[keras.layers.Layer]] = SDTRNNEncoder
