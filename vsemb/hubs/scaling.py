"""Correct scores for hubs: items that are near to many queries, and so rank too high for most of them."""

from __future__ import annotations

import numpy as np

# Rows whose scores are in memory at a time.
_BLOCK = 1000


def correct_hubs(images: np.ndarray, texts: np.ndarray, neighbours: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Extend embeddings so that their inner products are corrected for hubs.

    Cross-domain similarity local scaling (CSLS, Conneau et al. 2018, arXiv:1710.04087, section 2.3). The corrected
    score is 2 v . t - r(v) - r(t), where r is the mean score of an item with its nearest items on the other side. The
    correction of an item depends on all queries, so results are transductive: a system that answers one query at a time
    cannot reach them.

    Args:
        images: (n, dim) float32 embeddings, compared by inner products.
        texts: (m, dim) float32 embeddings.
        neighbours: number of nearest items, from 1 to the smaller of n and m.

    Returns:
        images: (n, dim + 2) float32.
        texts: (m, dim + 2) float32.

    Example: the second text is near to both images.

    >>> images, texts = correct_hubs(np.eye(2, dtype="f4"), np.array([[0.8, 0], [0.9, 0.9]], "f4"), 1)
    >>> (images @ texts.T).astype(float).round(2).tolist()
    [[-0.1, 0.0], [-1.7, 0.0]]
    """
    near_images, near_texts = _nearness(images, texts, neighbours), _nearness(texts, images, neighbours)
    extended = np.column_stack([2 * images, -near_images, np.ones_like(near_images)])
    return extended, np.column_stack([texts, np.ones_like(near_texts), -near_texts])


def _nearness(items: np.ndarray, others: np.ndarray, neighbours: int) -> np.ndarray:
    """Return the mean score of each item with its nearest others, (items,) float32."""
    blocks = (items[start : start + _BLOCK] @ others.T for start in range(0, len(items), _BLOCK))
    return np.concatenate([np.partition(block, -neighbours, axis=1)[:, -neighbours:].mean(axis=1) for block in blocks])
