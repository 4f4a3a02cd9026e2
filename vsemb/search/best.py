"""The best k of scores that come in blocks: exact, in bounded memory, equal scores in order of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Numbers held at a time, of scores and of embeddings: 64 MiB of float32.
BLOCK = 1 << 24
# Scores whose largest stands for them; what is not above the k-th largest of those is no result.
_GROUP = 64


def best_of_blocks(
    score: Callable[[int, int], np.ndarray], items: int, queries: int, k: int, dim: int, block: int = BLOCK
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k best items for each query; nothing but blocks of scores is held.

    Args:
        score: from the first and one past the last row of a block to its scores, (queries, rows) float32.
        items: how many there are.
        queries: how many there are.
        k: items wanted; fewer are returned where there are fewer.
        dim: size of an item, by which blocks are made small enough.
        block: numbers held at a time.

    Returns:
        rows: (queries, k) int64, best first, equal scores in the order of the rows.
        scores: (queries, k) float32.

    Example:

    >>> scores = np.array([[3.0, 9.0, 5.0, 9.0]], np.float32)
    >>> best_of_blocks(lambda start, stop: scores[:, start:stop], 4, 1, k=3, dim=1, block=2)[0].tolist()
    [[1, 3, 2]]
    """
    k = min(k, items)
    rows, scores = np.zeros((queries, 0), np.int64), np.zeros((queries, 0), np.float32)
    step = max(1, block // max(1, queries, dim))
    for start in range(0, items, step):
        # The block's best, then the best of those and of what was best so far, which stands first: so the
        # order among equals does not depend on the blocks.
        found = score(start, min(start + step, items))
        where, best = best_of(found, k)
        rows, scores = np.concatenate([rows, start + where], 1), np.concatenate([scores, best], 1)
        where, scores = best_of(scores, k)
        rows = np.take_along_axis(rows, where, axis=1)
    return rows, scores


def best_of(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k largest of each row, the first of equal ones first.

    Args:
        scores: (queries, items) float32, no NaN.
        k: how many; fewer are returned where there are fewer.

    Returns:
        where: (queries, k) int64.
        best: (queries, k) float32.

    Example:

    >>> best_of(np.array([[1.0, 7.0, 7.0, 3.0]], np.float32), 2)[0].tolist()
    [[1, 2]]
    """
    queries, items = scores.shape
    k = min(k, items)
    groups = items // _GROUP
    if k == 0 or queries == 0 or groups < 2 * k:
        where = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return where, np.take_along_axis(scores, where, axis=1)
    # The k-th largest of the groups' largest has k scores that are not below it, so no smaller one is wanted.
    largest = scores[:, : groups * _GROUP].reshape(queries, groups, _GROUP).max(axis=2)
    least = np.partition(largest, groups - k, axis=1)[:, groups - k]
    where, best = np.empty((queries, k), np.int64), np.empty((queries, k), scores.dtype)
    for row in range(queries):
        above = np.flatnonzero(scores[row] >= least[row])
        chosen = above[np.argsort(-scores[row, above], kind="stable")[:k]]
        where[row], best[row] = chosen, scores[row, chosen]
    return where, best
