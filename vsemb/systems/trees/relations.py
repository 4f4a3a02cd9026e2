"""Relations of dependency trees: their numbers, and products with one matrix per relation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

Tensor = Any

# The order is the order of trained matrices, so it must not change. `dep` is first: the number of unknown labels.
_UNIVERSAL = (
    "dep root nsubj obj iobj csubj ccomp xcomp obl vocative expl dislocated advcl advmod discourse aux cop mark nmod "
    "appos nummod acl amod det clf case conj cc fixed flat list parataxis compound orphan goeswith reparandum punct"
)
_CLEARNLP = (
    "acomp agent attr auxpass csubjpass dative dobj intj meta neg npadvmod nsubjpass oprd pcomp pobj poss preconj "
    "predet prep prt quantmod relcl"
)

#: The known relations; a relation is its place. The 37 of Universal Dependencies 2, then the further ones of the scheme
#: ClearNLP, which spaCy's English pipelines have. Subtypes such as `nmod:poss` count as their universal relation.
#: `dep`, the unspecified relation, stands for all other labels.
RELATIONS: tuple[str, ...] = (*_UNIVERSAL.split(), *_CLEARNLP.split())


def relation_product(relations: Tensor, count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that multiplies each row with the matrix of its relation.

    The rows are sorted by relation once, so that each call multiplies one block per relation. Backends other than
    TensorFlow multiply all rows with all matrices (`relation_product_reference`).

    Args:
        relations: (rows,) int, numbers from 0 to `count` - 1.
        count: number of matrices.

    Returns:
        A function of rows (rows, size) and matrices (count, size, units) of the same dtype, to (rows, units).

    Example:

    >>> multiply = relation_product(ops.convert_to_tensor([1, 0, 1]), 2)
    >>> multiply(ops.ones((3, 1)), ops.convert_to_tensor([[[2.0]], [[5.0]]])).numpy().tolist()
    [[5.0], [2.0], [5.0]]
    """
    if keras.backend.backend() != "tensorflow":
        return relation_product_reference(relations, count)
    from vsemb.ops.tensorflow import tf
    from vsemb.systems.trees.levels import multiply_blocks

    relations = ops.cast(relations, "int32")
    order = tf.argsort(relations, stable=True)
    back = tf.math.invert_permutation(order)
    sizes = tf.math.bincount(relations, minlength=count, maxlength=count)

    def multiply(rows: Tensor, matrices: Tensor) -> Tensor:
        return tf.gather(multiply_blocks(tf.gather(rows, order), tf.unstack(matrices, count), sizes), back)

    return multiply


def relation_product_reference(relations: Tensor, count: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function of `relation_product` with a short and slow implementation."""

    def multiply(rows: Tensor, matrices: Tensor) -> Tensor:
        member = ops.cast(ops.one_hot(relations, count), rows.dtype)
        return ops.sum(ops.einsum("nd,rdu->nru", rows, matrices) * ops.expand_dims(member, -1), axis=1)

    return multiply
