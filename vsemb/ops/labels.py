"""Which candidate answers which query: the labels and the mask that every loss over a batch reads."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any


def pair_labels(
    query_ids: Tensor, candidate_ids: Tensor, query_pairs: Tensor, candidate_pairs: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels the candidates of each query by id.

    A query's own pair is its positive; another candidate with the same id (a second caption of the same image) is
    masked, since it is not a fair negative; everything else is a negative.

    Args:
        query_ids: (queries,) int64, the id of the image behind each query.
        candidate_ids: (candidates,) int64, the id of the image behind each candidate.
        query_pairs: (queries,) integer, the number of the pair a query belongs to.
        candidate_pairs: (candidates,) integer, the number of the pair a candidate belongs to; a number no query has,
            e.g. -1, for a candidate that belongs to none of them.

    Returns:
        labels: (queries, candidates) int32, 1 for the own pair and 0 for others.
        mask: (queries, candidates) bool, false for candidates to ignore.

    Example: rows 0 and 1 show the same image.

    >>> ids, pairs = ops.convert_to_tensor([7, 7, 8]), ops.arange(3)
    >>> labels, mask = pair_labels(ids, ids, pairs, pairs)
    >>> labels.numpy().tolist(), mask.numpy().astype(int).tolist()
    ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
    """
    same = ops.equal(ops.expand_dims(query_ids, 1), ops.expand_dims(candidate_ids, 0))
    own = ops.logical_and(same, ops.equal(ops.expand_dims(query_pairs, 1), ops.expand_dims(candidate_pairs, 0)))
    return ops.cast(own, "int32"), ops.logical_or(own, ops.logical_not(same))


def class_labels(
    labels: Tensor, scores: Tensor, query_classes: Tensor, candidate_classes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Makes the candidates of each query classes instead of items, beside its own pair.

    The score of a class is the mean of its items' scores, the expectation of Reed et al. 2016, equations 6 and 7, over
    the items at hand.

    Args:
        labels: (queries, candidates), where 1 marks each query's own pair.
        scores: (queries, candidates) float.
        query_classes: (queries,) int64.
        candidate_classes: (candidates,) int64.

    Returns:
        labels: (queries, 1 + candidates) int32: 1 in the first column, the own pair, and for the query's own class; 0
            for other classes.
        scores: (queries, 1 + candidates): the score of the own pair, then those of the classes.
        mask: (queries, 1 + candidates) bool, false for an item whose class stands in an earlier column already.

    Example: items 0 and 2 are of class 7, so the mean of 4 and 1 stands for it.

    >>> classes, own = ops.convert_to_tensor([7, 8, 7]), ops.convert_to_tensor([[1, 0, 0]])
    >>> labels, values, mask = class_labels(own, ops.convert_to_tensor([[4.0, 3.0, 1.0]]), classes[:1], classes)
    >>> labels.numpy().tolist(), values.numpy().tolist(), mask.numpy().tolist()
    ([[1, 1, 0, 1]], [[4.0, 2.5, 3.0, 2.5]], [[True, True, True, False]])
    """
    same = ops.equal(ops.expand_dims(candidate_classes, 1), ops.expand_dims(candidate_classes, 0))
    members = ops.cast(same, scores.dtype)
    means = ops.matmul(scores, members) / ops.sum(members, axis=0)  # (queries, candidates)
    numbers = ops.arange(ops.shape(candidate_classes)[0], dtype="int32")
    first = ops.equal(ops.cast(ops.argmax(ops.cast(same, "int32"), axis=1), "int32"), numbers)
    own_class = ops.equal(ops.expand_dims(query_classes, 1), ops.expand_dims(candidate_classes, 0))
    own = ops.sum(ops.where(ops.equal(labels, 1), scores, 0.0), axis=1, keepdims=True)
    ones = ops.ones_like(own, dtype="int32")
    labels = ops.concatenate([ones, ops.cast(own_class, "int32")], axis=1)
    mask = ops.concatenate([ops.cast(ones, "bool"), ops.logical_or(ops.zeros_like(own_class), first)], axis=1)
    return labels, ops.concatenate([own, means], axis=1), mask
