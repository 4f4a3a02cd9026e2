"""Exact ranks from rounded inner products, on processors that multiply bfloat16 faster than float32.

The difference of a rounded score from the exact one has a bound (`vsemb.evaluation.rounding`). Most candidates are
therefore certainly ahead of the query's positive, or certainly behind it. The other candidates have rounded scores in a
window around the positive's. They and the positives are scored in float32, pair by pair in one order of summation, so
equal embeddings have equal scores.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any, NamedTuple

import keras
import numpy as np

from vsemb.evaluation.rounding import ROUNDOFF, round_rows
from vsemb.ops.backend import compiled, multiplies_bfloat16
from vsemb.ops.tensorflow import tf

_DTYPE = "bfloat16"
# Minimum number of scores for a scan; for fewer, compiling it takes longer than it saves.
_FEWEST = 1 << 24
# Number of scores per group; a group is marked if any of its scores is in a window.
_GROUP = 64
# Maximum share of groups with scores that are not behind; above it, counting over all scores is faster.
_FEW = 0.05
# Maximum share of groups with scores in a window; above it, scoring all pairs in float32 is faster.
_MOST = 0.15
# Number of pairs that are multiplied at a time; they fit in a processor's caches.
_ROWS = 512
# Number of rows and of columns per block whose products are compared with exact ones.
_SAMPLE = 16


class _Windows(NamedTuple):
    """Bounds of rounded scores, float32: below `low`, a candidate is behind; above `high`, it is ahead."""

    low: np.ndarray
    high: np.ndarray


def worth_a_scan(images: int, texts: int) -> bool:
    """Return whether `scanned_ranks` is faster for these numbers of images and texts."""
    return images * texts >= _FEWEST and keras.backend.backend() == "tensorflow" and multiplies_bfloat16()


def scanned_ranks(
    images: np.ndarray, texts: np.ndarray, own: np.ndarray, height: int, width: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rank images among texts and texts among images by their inner products.

    Args:
        images: (n, dim) float32.
        texts: (m, dim) float32.
        own: (m,) int64, the row of each text's image; every image has a text.
        height: images scored at a time.
        width: texts scored at a time.

    Returns:
        (n,) and (m,) int64 ranks from 0, as in `vsemb.evaluation.retrieval_ranks`. None if scores are too similar,
        embeddings are not finite, or products differ by more than the bound.
    """
    images, texts = (np.ascontiguousarray(rows, np.float32) for rows in (images, texts))
    of_images, of_texts = round_rows(images, _DTYPE), round_rows(texts, _DTYPE)
    changes = (of_images.largest, of_texts.largest)
    if not np.isfinite([(change.length, change.moved) for change in changes]).all():
        return None
    errors = of_images.error(of_texts.largest)
    reached = _pair_scores(images, texts, own, np.arange(len(own)))
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, own, reached)
    rows = _windows(best, errors)
    columns = _windows(reached, of_texts.error(of_images.largest))
    ahead_of_images = np.zeros(len(images), np.int64)
    ahead_of_texts = np.zeros(len(own), np.int64)
    for at_images, at_texts in product(_blocks(len(images), height), _blocks(len(texts), width)):
        products = tf.matmul(of_images.rounded(at_images), of_texts.rounded(at_texts), transpose_b=True)
        if not _within(products, images[at_images], texts[at_texts], errors[at_images]):
            return None
        of_rows = _Windows(rows.low[at_images, None], rows.high[at_images, None])
        of_columns = _Windows(columns.low[None, at_texts], columns.high[None, at_texts])
        marked = _not_behind(products, of_rows.low, of_columns.low).numpy()
        counted = np.count_nonzero(marked) > _FEW * marked.size
        if counted:
            in_rows, in_columns, close = _counts(products, *of_rows, *of_columns)
            ahead_of_images[at_images] += in_rows.numpy()
            ahead_of_texts[at_texts] += in_columns.numpy()
            marked = close.numpy()
            if np.count_nonzero(marked) > _MOST * marked.size:
                return None
        image, text = _members(marked, products.shape[1])
        scores = tf.gather_nd(products, np.stack([image, text], 1))
        scores = tf.cast(scores, tf.float32).numpy()
        image += at_images.start
        text += at_texts.start
        sides = ((ahead_of_images, image, rows, best), (ahead_of_texts, text, columns, reached))
        for ahead, at, windows, exact in sides:
            if not counted:
                np.add.at(ahead, at[scores > windows.high[at]], 1)
            close = (windows.low[at] <= scores) & (scores <= windows.high[at]) & (own[text] != image)
            reaching = _pair_scores(images, texts, image[close], text[close]) >= exact[at[close]]
            np.add.at(ahead, at[close][reaching], 1)
    return ahead_of_images, ahead_of_texts


def _blocks(count: int, most: int) -> list[slice]:
    """Return the fewest slices of similar size with at most `most` entries each."""
    bounds = np.linspace(0, count, -(-count // most) + 1).astype(int)
    return [slice(start, end) for start, end in pairwise(bounds)]


def _within(products: tf.Tensor, images: np.ndarray, texts: np.ndarray, errors: np.ndarray) -> bool:
    """Return whether a sample of products is within the bound of the exact ones.

    The bound assumes sums in float32; not every build of TensorFlow sums products of bfloat16 in float32.
    """
    grid = np.meshgrid(_sample(len(images)), _sample(len(texts)))
    row, column = grid[0].ravel(), grid[1].ravel()
    rounded = tf.cast(tf.gather_nd(products, np.stack([row, column], 1)), tf.float32).numpy()
    windows = _windows(_pair_scores(images, texts, row, column), errors[row])
    return bool(((windows.low <= rounded) & (rounded <= windows.high)).all())


def _sample(count: int) -> np.ndarray:
    """Return a few numbers of rows, evenly spread."""
    return np.linspace(0, count - 1, min(_SAMPLE, count)).astype(int)


def _windows(exact: np.ndarray, error: np.ndarray) -> _Windows:
    """Return the window around each exact score in which a rounded score does not decide the comparison."""
    low, high = exact - error, exact + error
    # Products are rounded to the dtype too. The last term covers rounding of the sums here.
    roundoff = 1.02 * ROUNDOFF[_DTYPE]
    return _Windows(
        (low - roundoff * np.abs(low) - 1e-6 * np.abs(exact)).astype(np.float32),
        (high + roundoff * np.abs(high) + 1e-6 * np.abs(exact)).astype(np.float32),
    )


def _pair_scores(images: np.ndarray, texts: np.ndarray, image: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return the float32 inner product of each pair of rows."""
    scores = np.empty(len(image), np.float32)
    for start in range(0, len(image), _ROWS):
        block = slice(start, start + _ROWS)
        scores[block] = np.einsum("nd,nd->n", images[image[block]], texts[text[block]])
    return scores


def _members(marked: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of all scores of marked groups."""
    row, group = np.nonzero(marked)
    column = (group[:, None] * _GROUP + np.arange(_GROUP)).reshape(-1)
    inside = column < columns
    return np.repeat(row, _GROUP)[inside], column[inside]


def _any_of_groups(marked: Any) -> Any:
    # Shapes are dynamic, so that the graph is traced once for all numbers of rows and columns.
    rows, columns = tf.unstack(tf.shape(marked))
    grouped = tf.reshape(tf.pad(marked, [[0, 0], [0, -columns % _GROUP]]), [rows, -1, _GROUP])
    return tf.reduce_any(grouped, axis=2)


def _mark_not_behind(products: Any, low_row: Any, low_column: Any) -> Any:
    """Mark groups with scores that are not behind in their row, or in their column."""
    scores = tf.cast(products, tf.float32)
    return _any_of_groups((scores >= low_row) | (scores >= low_column))


def _count(products: Any, low_row: Any, high_row: Any, low_column: Any, high_column: Any) -> tuple[Any, ...]:
    """Count the scores that are ahead, per row and per column, and mark groups with scores in a window."""
    scores = tf.cast(products, tf.float32)
    ahead_in_row, ahead_in_column = scores > high_row, scores > high_column
    close = ((scores >= low_row) & ~ahead_in_row) | ((scores >= low_column) & ~ahead_in_column)
    return (
        tf.reduce_sum(tf.cast(ahead_in_row, tf.int32), axis=1),
        tf.reduce_sum(tf.cast(ahead_in_column, tf.int32), axis=0),
        _any_of_groups(close),
    )


_not_behind, _counts = compiled(_mark_not_behind), compiled(_count)
