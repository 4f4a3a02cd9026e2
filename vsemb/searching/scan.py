"""Exact search for the k best items, from blocks of scores or from a scan of rounded inner products.

The scan uses bfloat16 on processors that multiply it faster, and float32 on others. The distance of a rounded score
from the exact score has a bound (`vsemb.evaluation.rounding`). Items within the bound are scored exactly,
so the result is exact. The scan compares the maxima of groups of scores: at least k scores reach the k-th largest
maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from vsemb.evaluation.rounding import ROUNDOFF, Rounding, round_rows, within
from vsemb.ops.backend import multiplies_bfloat16
from vsemb.ops.tensorflow import tf

# Numbers in memory at a time, of scores and of embeddings: 64 MiB of float32.
BLOCK = 1 << 24
#: Minimum number of queries for a scan. Fewer queries are limited by memory bandwidth, which a scan does not reduce.
FEWEST_QUERIES = 8
# Scores per group; scores below the k-th largest maximum of the groups are not results.
_GROUP = 64
# Number of items whose products are compared with exact ones.
_SAMPLE = 256
# Alignment of tensors for TensorFlow's kernels, in bytes; blocks of a mapped `.npy` file have it.
_ALIGNMENT = 64
# Maximum number of candidates per result, over all queries; with more, scores are too similar for a scan.
_MOST = 64


def best_of_blocks(
    score: Callable[[int, int], np.ndarray], items: int, queries: int, k: int, dim: int, block: int = BLOCK
) -> tuple[np.ndarray, np.ndarray]:
    """Find the k best items per query. Only one block of scores is in memory at a time.

    Args:
        score: function of the first row of a block, and the row after its last, that returns the scores of the block,
            (queries, rows) float32.
        items: number of items.
        queries: number of queries.
        k: number of results, at most `items`.
        dim: size of an item; larger items have smaller blocks.
        block: numbers in memory at a time.

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
        # The best items so far come first, so the order of equal scores does not depend on the blocks.
        block_scores = score(start, min(start + step, items))
        where, best = best_of(block_scores, k)
        rows, scores = np.concatenate([rows, start + where], 1), np.concatenate([scores, best], 1)
        where, scores = best_of(scores, k)
        rows = np.take_along_axis(rows, where, axis=1)
    return rows, scores


def best_of(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the k largest scores of each row. Equal scores are in the order of their columns.

    Args:
        scores: (queries, items) float32, no NaN.
        k: number of results; fewer if there are fewer items.

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
    # At least k scores reach the k-th largest maximum of the groups, so smaller scores are not results.
    largest = scores[:, : groups * _GROUP].reshape(queries, groups, _GROUP).max(axis=2)
    least = np.partition(largest, groups - k, axis=1)[:, groups - k]
    where, best = np.empty((queries, k), np.int64), np.empty((queries, k), scores.dtype)
    for row in range(queries):
        above = np.flatnonzero(scores[row] >= least[row])
        chosen = above[np.argsort(-scores[row, above], kind="stable")[:k]]
        where[row], best[row] = chosen, scores[row, chosen]
    return where, best


def rounding(embeddings: np.ndarray, dtype: str | None = None) -> Rounding:
    """Measure the error of rounding items. It takes as long as a search, so callers keep the result.

    Args:
        embeddings: (items, dim) float32 or float16, finite.
        dtype: `"bfloat16"` or `"float32"`; None for the one that the processor multiplies faster.
    """
    dtype = dtype or ("bfloat16" if multiplies_bfloat16() else "float32")
    length = moved = 0.0
    for _, block in _blocks(embeddings, 1):
        back = tf.cast(tf.cast(block, dtype), tf.float32)
        length = max(length, float(tf.reduce_max(tf.norm(block, axis=1))))
        moved = max(moved, float(tf.reduce_max(tf.norm(block - back, axis=1))))
    measured = Rounding(dtype, length, moved)
    sample = np.asarray(embeddings[:_SAMPLE], np.float32)
    if dtype == "bfloat16" and not within(sample, measured):
        return rounding(embeddings, "float32")
    return measured


def scan(
    embeddings: np.ndarray, queries: np.ndarray, k: int, excluded: np.ndarray, measured: Rounding
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the k items with the largest inner product per query.

    Args:
        embeddings: (items, dim) float32 or float16, finite.
        queries: (queries, dim) float32, finite, at least one.
        k: number of results, at most the number of items that are not excluded.
        excluded: rows that are not returned.
        measured: result of `rounding` for the embeddings.

    Returns:
        rows: (queries, k) int64, best first, equal scores in the order of the rows.
        scores: (queries, k) float32.

        None if scoring all items is faster: there are too few items for k, or scores are too similar.

    Example:

    >>> items = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    >>> items /= np.linalg.norm(items, axis=1, keepdims=True)
    >>> rows, _ = scan(items, items[:2], 1, np.zeros(0, np.int64), rounding(items))
    >>> rows.tolist()
    [[0], [1]]
    """
    candidates = _candidates(embeddings, queries, k, excluded, measured)
    if candidates is None:
        return None
    of_query, items = candidates
    rows, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    for number, query in enumerate(queries):
        mine = np.sort(items[of_query == number])
        # Each row is summed in the same order, so that equal items have equal scores.
        exact = np.einsum("nd,d->n", np.asarray(embeddings[mine], np.float32), query)
        where, best = best_of(exact[None], k)
        rows[number], scores[number] = mine[where[0]], best[0]
    return rows, scores


def _candidates(
    embeddings: np.ndarray, queries: np.ndarray, k: int, excluded: np.ndarray, measured: Rounding
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return all pairs (query, item) that could be among the best k of their query."""
    count, most = len(queries), _MOST * k * len(queries)
    roundoff = ROUNDOFF[measured.dtype]
    rows = round_rows(queries, measured.dtype)
    rounded, error = rows.rounded(), rows.error(measured)
    tops = np.zeros((count, 0), np.float32)
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for start, block in _blocks(embeddings, count):
        products = tf.matmul(rounded, tf.cast(block, measured.dtype), transpose_b=True)
        scores = tf.cast(products, tf.float32).numpy()
        here = excluded[(excluded >= start) & (excluded < start + scores.shape[1])] - start
        scores[:, here] = -np.inf
        short = -scores.shape[1] % _GROUP
        if short:
            scores = np.pad(scores, ((0, 0), (0, short)), constant_values=-np.inf)
        grouped = scores.reshape(count, -1, _GROUP)
        largest = tf.reduce_max(as_tensor(grouped), axis=2).numpy()
        tops = np.concatenate([tops, largest], axis=1)
        if tops.shape[1] < k:
            return None
        tops = -np.partition(-tops, k - 1, axis=1)[:, :k]
        if not np.isfinite(tops).all():
            return None
        least = _least(tops[:, -1], error, roundoff)
        query, group = np.nonzero(largest >= least[:, None])
        which, inside = np.nonzero(grouped[query, group] >= least[query, None])
        query, item = query[which], group[which] * _GROUP + inside
        pairs.append((query, start + item, grouped.reshape(count, -1)[query, item]))
        if sum(len(each) for each, _, _ in pairs) > most:
            pairs = [_above(pairs, least)]
            if len(pairs[0][0]) > most:
                return None
    query, item, _ = _above(pairs, _least(tops[:, -1], error, roundoff))
    return query, item


def _least(kth: np.ndarray, error: np.ndarray, roundoff: float) -> np.ndarray:
    """Return the minimum rounded score of an item that can be among the best, given the k-th largest rounded score."""
    # Both scores differ from the exact ones by at most the error plus roundoff. The last term covers rounding here.
    return kth - 2.02 * (error + roundoff * (np.abs(kth) + 2 * error)) - 1e-6 * np.abs(kth)


def _above(
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]], least: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    query, item, score = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    kept = score >= least[query]
    return query[kept], item[kept], score[kept]


def _blocks(embeddings: np.ndarray, queries: int) -> Iterator[tuple[int, tf.Tensor]]:
    """Yield the first row and the items of each block, float32."""
    step = max(_GROUP, BLOCK // max(queries, embeddings.shape[1]) // _GROUP * _GROUP)
    for start in range(0, len(embeddings), step):
        yield start, as_tensor(np.asarray(embeddings[start : start + step], np.float32))


def as_tensor(array: np.ndarray) -> tf.Tensor:
    """Return an array as a tensor, without a copy if the array is writable, contiguous and aligned."""
    aligned = array.ctypes.data % _ALIGNMENT == 0
    if not (aligned and array.flags.writeable and array.flags.c_contiguous and array.size):
        return tf.convert_to_tensor(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
