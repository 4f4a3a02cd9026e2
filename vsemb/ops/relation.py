"""Which candidate answers which query: the matrix that every row-wise loss reads."""

from __future__ import annotations

from typing import Any

from keras import ops

Tensor = Any

POSITIVE, NEGATIVE, IGNORED = 1, 0, -1


def pair_relation(
    query_ids: Tensor, candidate_ids: Tensor, query_pairs: Tensor, candidate_pairs: Tensor
) -> Tensor:
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
