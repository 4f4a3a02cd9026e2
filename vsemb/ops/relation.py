"""Which candidate answers which query: the matrix that every row-wise loss reads."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

POSITIVE, NEGATIVE, IGNORED, OWN_CLASS = 1, 0, -1, 2


def pair_relation(query_ids: Tensor, candidate_ids: Tensor, query_pairs: Tensor, candidate_pairs: Tensor) -> Tensor:
    """Relates queries to candidates by id.

    A query's own pair is its positive; another candidate with the same id (a second caption of the
    same image) is no fair negative and is ignored; everything else is a negative.

    Args:
        query_ids: (queries,) int64, the id of the image behind each query.
        candidate_ids: (candidates,) int64, the id of the image behind each candidate.
        query_pairs: (queries,) integer, the number of the pair a query belongs to.
        candidate_pairs: (candidates,) integer, the number of the pair a candidate belongs to; a
            number no query has, e.g. -1, for a candidate that is nobody's own.

    Returns:
        (queries, candidates) int32 of 1 (own pair), 0 (negative), -1 (ignore).

    Example: rows 0 and 1 show the same image.

    >>> ids, pairs = ops.convert_to_tensor([7, 7, 8]), ops.arange(3)
    >>> ops.convert_to_numpy(pair_relation(ids, ids, pairs, pairs)).tolist()
    [[1, -1, 0], [-1, 1, 0], [0, 0, 1]]
    """
    same = ops.equal(ops.expand_dims(query_ids, 1), ops.expand_dims(candidate_ids, 0))
    own = ops.equal(ops.expand_dims(query_pairs, 1), ops.expand_dims(candidate_pairs, 0))
    related = ops.where(own, POSITIVE, IGNORED)
    return ops.cast(ops.where(same, related, NEGATIVE), "int32")


def class_rows(
    relation: Tensor, scores: Tensor, query_classes: Tensor, candidate_classes: Tensor
) -> tuple[Tensor, Tensor]:
    """Makes the candidates of each query classes instead of items, beside its own pair.

    The score of a class is the mean of its items' scores, the expectation of Reed et al. 2016, equations
    6 and 7, over the items at hand.

    Args:
        relation: (queries, candidates), where 1 marks each query's own pair.
        scores: (queries, candidates) float.
        query_classes: (queries,) int64.
        candidate_classes: (candidates,) int64.

    Returns:
        relation: (queries, 1 + candidates) int32: 1 in the first column, the own pair; then 0 for a class
            that is another one, 2 for the query's own class, and -1 for an item whose class stands in
            an earlier column already.
        scores: (queries, 1 + candidates): the score of the own pair, then those of the classes.

    Example: items 0 and 2 are of class 7, so the mean of 4 and 1 stands for it.

    >>> classes = ops.convert_to_tensor([7, 8, 7])
    >>> own = ops.convert_to_tensor([[1, 0, -1]])
    >>> kinds, values = class_rows(own, ops.convert_to_tensor([[4.0, 3.0, 1.0]]), classes[:1], classes)
    >>> kinds.numpy().tolist(), values.numpy().tolist()
    ([[1, 2, 0, -1]], [[4.0, 2.5, 3.0, 2.5]])
    """
    same = ops.equal(ops.expand_dims(candidate_classes, 1), ops.expand_dims(candidate_classes, 0))
    members = ops.cast(same, scores.dtype)
    means = ops.matmul(scores, members) / ops.sum(members, axis=0)  # (queries, candidates)
    numbers = ops.arange(ops.shape(candidate_classes)[0], dtype="int32")
    first = ops.equal(ops.cast(ops.argmax(ops.cast(same, "int32"), axis=1), "int32"), numbers)
    own_class = ops.equal(ops.expand_dims(query_classes, 1), ops.expand_dims(candidate_classes, 0))
    kinds = ops.where(first, ops.where(own_class, OWN_CLASS, NEGATIVE), IGNORED)
    own = ops.sum(ops.where(ops.equal(relation, POSITIVE), scores, 0.0), axis=1, keepdims=True)
    kinds = ops.concatenate([ops.ones_like(own, dtype="int32"), ops.cast(kinds, "int32")], axis=1)
    return kinds, ops.concatenate([own, means], axis=1)
