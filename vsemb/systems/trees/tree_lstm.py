"""The dependency Tree-LSTM of imgcap and the child-sum Tree-LSTM of Tai et al. 2015, over trees as tensors of heads."""

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

Tensor = Any

Children = Literal["slots", "sum"]
TreePooling = Literal["root", "mean", "max", "mean+max"]


def valid_trees(heads: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows are one tree over all their tokens, and the depth of each token.

    A row is valid if its tokens come before its padding, exactly one token has head 0, every other head is the number
    of a token, and every token reaches the root over its heads. Trees may be non-projective. A row without tokens is
    not valid.

    Args:
        heads: (batch, steps) int, the 1-based number of each token's head, 0 for the root; ignored at padding.
        mask: (batch, steps) bool, true at tokens.

    Returns:
        valid: (batch,) bool.
        depth: (batch, steps) int32, number of heads above a token, 0 for the root.

    Example:

    >>> heads = ops.convert_to_tensor([[2, 0, 2], [2, 1, 0], [2, 0, 4]])
    >>> valid_trees(heads, ops.ones((3, 3), "bool"))[0].numpy().tolist()  # a tree, a cycle, no such token
    [True, False, False]
    """
    mask = ops.cast(mask, "bool")
    heads = ops.where(mask, ops.cast(heads, "int32"), 0)
    steps = ops.shape(heads)[1]
    number = ops.arange(1, steps + 1, dtype="int32")
    length = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)  # (batch, 1)
    in_range = ops.all((heads >= 0) & (heads <= length), axis=1)
    is_prefix = ops.all(ops.equal(mask, number <= length), axis=1)
    has_one_root = ops.equal(ops.sum(ops.cast(mask & ops.equal(heads, 0), "int32"), axis=1), 1)

    # Place 0 is above the root and above itself. Each round doubles the distance of `above`.
    above = ops.pad(ops.clip(heads, 0, steps), ((0, 0), (1, 0)))  # (batch, steps + 1)
    depth = ops.cast(above > 0, "int32")

    def goes_on(reach: Tensor, above: Tensor, depth: Tensor) -> Tensor:
        # Tokens on a cycle never reach 0; the number of tokens ends the loop.
        return ops.any(above > 0) & (reach < steps)

    def double(reach: Tensor, above: Tensor, depth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        depth = depth + ops.take_along_axis(depth, above, axis=1)
        return reach * 2, ops.take_along_axis(above, above, axis=1), depth

    one = ops.convert_to_tensor(1, "int32")
    _, above, depth = ops.while_loop(goes_on, double, (one, above, depth))
    has_no_cycle = ops.logical_not(ops.any(above > 0, axis=1))
    return is_prefix & in_range & has_one_root & has_no_cycle, depth[:, 1:]


def child_slots(heads: Tensor, mask: Tensor, per_side: int) -> Tensor:
    """Number the children of every head, left and right children separately.

    Args:
        heads: (batch, steps) int, as in `valid_trees`.
        mask: (batch, steps) bool.
        per_side: slots per side, p. Children beyond the p-th share the last slot.

    Returns:
        (batch, steps) int32: 0 to p - 1 for left children in sentence order, p to 2p - 1 for right children, 0 for
        roots and padding.

    Example:

    >>> heads = ops.convert_to_tensor([[4, 4, 4, 0, 4]])
    >>> child_slots(heads, heads >= 0, 2).numpy().tolist()
    [[0, 1, 1, 0, 2]]
    """
    steps = ops.shape(heads)[1]
    number = ops.arange(1, steps + 1, dtype="int32")
    heads = ops.where(mask, ops.cast(heads, "int32"), 0)
    is_left = number < heads
    # Equal for siblings on one side: their head, negative for right children.
    family = ops.where(is_left, heads, -heads)
    is_earlier = ops.expand_dims(number, 0) < ops.expand_dims(number, 1)  # (steps, steps)
    siblings = ops.equal(ops.expand_dims(family, 2), ops.expand_dims(family, 1)) & is_earlier
    rank = ops.minimum(ops.sum(ops.cast(siblings, "int32"), axis=2), per_side - 1)
    return ops.where(heads > 0, ops.where(is_left, rank, rank + per_side), 0)


def tree_lstm_states(
    inputs: Tensor, recurrent: Tensor, heads: Tensor, mask: Tensor, *, child_sum: bool = False
) -> Tensor:
    """Compute the states of a dependency Tree-LSTM at all nodes (imgcap, appendix A, equations 2 to 9).

    With p slots per side, slot s of a node holds the sums h_s and c_s of its children in the slot, and

        i = sigmoid(x_i + sum_s h_s U_s,i)      o and u likewise, u with tanh
        f_t = sigmoid(x_f + sum_s h_s U_s,f_t)  of each slot t
        c = i * u + sum_t f_t * c_t             h = o * tanh(c)

    With `child_sum`, i, o and u read the sum of all children's h, and the forget gate of each child reads the h of
    that child only (Tai et al. 2015, equations 2 to 8).

    TensorFlow computes nodes level by level with a custom gradient (`levels.py`), other backends use
    `tree_lstm_states_reference`. Half precision is computed in float32.

    Args:
        inputs: (batch, steps, 4 units) float, the input of each token to its gates i, o, u, f in this order, with
            biases; f is shared by all forget gates.
        recurrent: (2p, units, (3 + 2p) units) float. Matrix s multiplies the h of a child in slot s; the result is
            added to its head's i, o, u and forget gates of slots 0 to 2p - 1 (see `child_slots`). With `child_sum`,
            (1, units, 4 units): i, o, u, and the child's own forget gate.
        heads: (batch, steps) int, as in `valid_trees`.
        mask: (batch, steps) bool.
        child_sum: whether children are summed and not kept in slots; default False.

    Returns:
        (batch, steps, units), h of each token in sentence order; 0 at padding and in rows that are not a tree.

    Example:

    >>> inputs, recurrent = ops.ones((1, 3, 8)), ops.zeros((2, 2, 10))  # p = 1, 2 units
    >>> heads = ops.convert_to_tensor([[2, 0, 0]])
    >>> tree_lstm_states(inputs, recurrent, heads, ops.convert_to_tensor([[True, True, False]])).shape
    TensorShape([1, 3, 2])
    """
    if keras.backend.backend() != "tensorflow":
        return tree_lstm_states_reference(inputs, recurrent, heads, mask, child_sum=child_sum)
    from vsemb.systems.trees.levels import level_states

    dtype, inputs, recurrent = _wide(inputs, recurrent)
    heads, mask, depth, slot = _shape(heads, mask, recurrent.shape[0] // 2)
    return ops.cast(level_states(inputs, recurrent, heads, mask, depth, slot, child_sum=child_sum), dtype)


def tree_lstm_states_reference(
    inputs: Tensor, recurrent: Tensor, heads: Tensor, mask: Tensor, *, child_sum: bool = False
) -> Tensor:
    """Compute `tree_lstm_states` with a short and slow reference implementation.

    Every round computes all nodes again. A node of height n is correct after n rounds, and all nodes are after `steps`
    rounds. Arguments and result are the same as for `tree_lstm_states`.
    """
    dtype, inputs, recurrent = _wide(inputs, recurrent)
    slots, units = recurrent.shape[:2]
    heads, mask, _, slot = _shape(heads, mask, slots // 2)
    steps = ops.shape(heads)[1]
    number = ops.arange(1, steps + 1, dtype="int32")
    is_child = ops.equal(ops.expand_dims(heads, 1), ops.expand_dims(number, 1)) & ops.expand_dims(mask, 1)
    in_slot = ops.equal(ops.expand_dims(slot, 1), ops.reshape(ops.arange(slots, dtype="int32"), (-1, 1)))
    # (batch, slots, steps of heads, steps of children)
    children = ops.cast(ops.expand_dims(is_child, 1) & ops.expand_dims(in_slot, 2), inputs.dtype)
    keep = ops.expand_dims(ops.cast(mask, inputs.dtype), -1)
    forget_inputs = ops.expand_dims(inputs[..., 3 * units :], 2)  # (batch, steps, 1, units)

    def compute(_: Tensor, states: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = states
        slot_h = ops.einsum("bsji,bid->bjsd", children, h)
        if child_sum:
            own = ops.matmul(h, recurrent[0, :, 3 * units :])
            above = ops.einsum("bsji,bjd->bid", children, inputs[..., 3 * units :])
            kept = ops.einsum("bsji,bid->bjd", children, ops.sigmoid(above + own) * c)
            sums = ops.matmul(slot_h[:, :, 0], recurrent[0, :, : 3 * units])
        else:
            sums = ops.einsum("bjsd,sdg->bjg", slot_h, recurrent)
            forget = ops.sigmoid(forget_inputs + ops.reshape(sums[..., 3 * units :], ops.shape(slot_h)))
            kept = ops.sum(forget * ops.einsum("bsji,bid->bjsd", children, c), axis=2)
        i, o, u = ops.split(inputs[..., : 3 * units] + sums[..., : 3 * units], 3, axis=-1)
        c = (ops.sigmoid(i) * ops.tanh(u) + kept) * keep
        return ops.sigmoid(o) * ops.tanh(c) * keep, c

    zeros = ops.zeros_like(inputs[..., :units])
    h, _ = ops.fori_loop(0, steps, compute, (zeros, zeros))
    return ops.cast(h, dtype)


def root_states(states: Tensor, heads: Tensor, mask: Tensor) -> Tensor:
    """Return the states of the roots.

    Args:
        states: (batch, steps, units) float.
        heads: (batch, steps) int, as in `valid_trees`.
        mask: (batch, steps) bool.

    Returns:
        (batch, units); 0 for a row without a root.
    """
    is_root = ops.cast(ops.cast(mask, "bool") & ops.equal(heads, 0), states.dtype)
    return ops.sum(states * ops.expand_dims(is_root, -1), axis=1)


def _wide(inputs: Tensor, recurrent: Tensor) -> tuple[str, Tensor, Tensor]:
    """Return the output dtype, and both tensors in float32 or float64."""
    inputs = ops.convert_to_tensor(inputs)
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    compute = "float64" if dtype == "float64" else "float32"
    return dtype, ops.cast(inputs, compute), ops.cast(recurrent, compute)


def _shape(heads: Tensor, mask: Tensor, per_side: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return heads, mask, depths and slots; rows that are not a tree become padding.

    With 0 slots per side, all children are in slot 0.
    """
    valid, depth = valid_trees(heads, mask)
    mask = ops.cast(mask, "bool") & ops.expand_dims(valid, 1)
    heads = ops.where(mask, ops.cast(heads, "int32"), 0)
    slots = child_slots(heads, mask, per_side) if per_side else ops.zeros_like(heads)
    return heads, mask, depth, slots


@keras.saving.register_keras_serializable("vsemb")
class TreeLSTMEncoder(PooledSentenceEncoder):
    """Words and their heads -> Tree-LSTM -> state of the root -> (if sizes differ) a linear map to `dim`.

    With `children="slots"`, appendix A of the imgcap report, where p is `slots`:

    | equation | here |
    | --- | --- |
    | (2) children beyond the p-th of a side share a slot | `vsemb.systems.trees.tree_lstm.child_slots` |
    | W^(i), W^(o), W^(u), W^(f) of (5) to (9) | `kernel`, (word dim, 4 units), in the order i, o, u, f |
    | b^(i), b^(o), b^(u), b^(f) | `bias`, (4 units,) |
    | U_k^(i), U_k^(o), U_k^(u) of (7) to (9) | `recurrent_kernel[k - 1]`, columns 0 to 3 units |
    | V_k^(i), V_k^(o), V_k^(u) | `recurrent_kernel[p + k - 1]`, the same columns |
    | U_jk^(l), U_jk^(r) of (5), (6) | `recurrent_kernel[k - 1]`, gates 3 + j - 1 and 3 + p + j - 1 |
    | V_jk^(l), V_jk^(r) | `recurrent_kernel[p + k - 1]`, the same columns |
    | (3) to (9) | `vsemb.systems.trees.tree_lstm.tree_lstm_states` |

    The activations are sigmoids, and tanh for u. `children="sum"` computes equations 2 to 8 of Tai et al. 2015, and
    `recurrent_kernel` is (1, units, 4 units): matrices of i, o and u for the sum of the children's h, and of the
    forget gate for the h of one child.

    Args:
        words: the word vectors.
        dim: size of the sentence embedding; None for the size of the pooled states; default 1024.
        units: size of the states; default 300.
        slots: p, slots for left children and for right children; default 2; unused with `children="sum"`.
        children: `"slots"` (the default), each with its own matrices and forget gate, or `"sum"`.
        pooling: `"root"` (as in both papers; the default), or `"mean"`, `"max"` or `"mean+max"` over all nodes.
        dropout: share of pooled entries dropped in training, in [0, 1).
        init_scale: both kernels start uniform in [-init_scale, init_scale]. None gives Glorot's range, for the matrix
            from a word vector to all gates, and for the matrix from the states of all slots to all gates. Biases start
            at 0, biases of forget gates at 1.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps, 2) int: word id of each token, 0 = padding on the right, and the 1-based number of
            its head, 0 for the root.
        training: whether dropout acts.

    Returns:
        (batch, dim). A row that is not a tree (`valid_trees`) is embedded as if all its states were 0.

    Raises:
        InvalidArgumentError: for an unknown `pooling` or `children`, or fewer than 1 slot or unit.

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
        # The numbers of nodes and levels depend on the batch, which XLA cannot compile.
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
        glorot = math.sqrt(6 / (rows + columns))
        return uniform(glorot if self.init_scale is None else self.init_scale, None)

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        word_ids, heads = token_ids[..., 0], token_ids[..., 1]
        mask = padding_mask(word_ids)
        vectors = self.words(word_ids, training=training)
        # A single matrix product. One per sentence is several times slower; its gradient is slower still.
        rows = ops.matmul(ops.reshape(vectors, (-1, self.words.dim)), self.kernel) + self.bias
        inputs = ops.reshape(rows, (*ops.shape(word_ids), 4 * self.units))
        states = tree_lstm_states(inputs, self.recurrent_kernel, heads, mask, child_sum=self.children == "sum")
        pooled = root_states(states, heads, mask) if self._pool is None else self._pool(states, mask)
        return self.head(pooled, training)


def _forget_is_one(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    """Return biases of the gates i, o, u and f."""
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(3 * units, dtype), ops.ones(units, dtype)])


@dataclass(frozen=True)
class TreeEncoderPart(WordEncoderPart):
    """Fields of the recursive networks over trees.

    Attributes:
        units: size of a node's state.
        pooling: state of the `root`, or `mean`, `max` or `mean+max` over the states of all nodes.
        dropout: share of pooled entries dropped in training.
        init_scale: weights start uniform in +- this; null for Glorot's range.
    """

    units: Size = 300
    pooling: TreePooling = "root"
    dropout: Share = 0.0
    init_scale: Positive | None = None


@dataclass(frozen=True)
class _TreeLSTMPart(TreeEncoderPart):
    """Base of both Tree-LSTMs."""

    accepts: ClassVar[tuple[str, ...]] = ("trees",)
    children: ClassVar[str]
    layer: ClassVar[type[keras.layers.Layer]] = TreeLSTMEncoder

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        return {**self.arguments(), "children": self.children}


@dataclass(frozen=True)
class TreeLSTM(_TreeLSTMPart, kind="tree-lstm"):
    """The dependency Tree-LSTM of imgcap, with matrices per child slot.

    Attributes:
        slots: slots for left children and for right children; further children share the last.
    """

    children: ClassVar[str] = "slots"

    slots: Annotated[int, between(1, 16)] = 2


@dataclass(frozen=True)
class ChildSumTreeLSTM(_TreeLSTMPart, kind="child-sum-tree-lstm"):
    """The child-sum Tree-LSTM of Tai et al. 2015, which adds the states of a node's children."""

    children: ClassVar[str] = "sum"
