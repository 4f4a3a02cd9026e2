"""Captions of very different lengths for one image (Vendrov et al. 2016, section 4.6).

A symmetric similarity must put a short caption and a long one close to the same image, and so close to each
other; an order lets the short one lie far above. Length stands in for the level of detail.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation.retrieval import retrieval_ranks
from vsemb.ops.ranks import ranks as count_ranks
from vsemb.similarities import Similarity

_BLOCK = 100


@dataclass(frozen=True, eq=False)
class LengthAnalysis:
    """Ranks of one model over pairs of captions; all from 1, ties counted against the model.

    Attributes:
        pairs: (pairs, 2) int64, rows of the shorter and of the longer caption.
        image_ranks: (captions,) int64, the rank of its image with each caption as query.
        longer_ranks: (pairs,) int64, the rank of the longer caption among all others with the shorter one as
            query.
    """

    pairs: np.ndarray
    image_ranks: np.ndarray
    longer_ranks: np.ndarray

    def to_json(self) -> dict[str, float]:
        """Returns the mean ranks; a caption counts once in each, in however many pairs it is."""
        return {
            "image_all": float(self.image_ranks.mean()),
            "image_pairs": self._mean(self.pairs),
            "image_shorter": self._mean(self.pairs[:, 0]),
            "image_longer": self._mean(self.pairs[:, 1]),
            "longer_by_shorter": float(self.longer_ranks.mean()),
        }

    def _mean(self, captions: np.ndarray) -> float:
        return float(self.image_ranks[np.unique(captions)].mean())


def length_pairs(words: np.ndarray, text_image_ids: np.ndarray, count: int = 100) -> np.ndarray:
    """Finds the pairs of captions of one image that differ most in length.

    Args:
        words: (captions,) int, the length of each caption.
        text_image_ids: (captions,) int64, the image that each describes; an image's captions stand together.
        count: pairs wanted.

    Returns:
        (count, 2) int64, rows of the shorter and of the longer caption, the biggest difference first, equal
        ones in the order of the data; fewer where there are fewer pairs of different lengths.

    Raises:
        InvalidArgumentError: for count < 1.
        DataError: if no two captions of an image differ in length.

    Example: the second image's captions have 9, 2 and 4 words.

    >>> length_pairs(np.array([3, 5, 9, 2, 4]), np.array([7, 7, 8, 8, 8]), 2).tolist()
    [[3, 2], [4, 2]]
    """
    if count < 1:
        raise invalid_argument("pairs", count, "an integer >= 1")
    starts = np.flatnonzero(np.append(True, text_image_ids[1:] != text_image_ids[:-1]))
    found = [
        pair
        for start, stop in itertools.pairwise([*starts, len(words)])
        for pair in itertools.combinations(range(start, stop), 2)
        if words[pair[0]] != words[pair[1]]
    ]
    if not found:
        raise DataError("No image has two captions of different lengths, so there are no pairs to compare.")
    pairs = np.array(found, np.int64)
    lengths = np.asarray(words)[pairs]
    order = np.argsort(-np.abs(lengths[:, 0] - lengths[:, 1]), kind="stable")[:count]
    pairs, lengths = pairs[order], lengths[order]
    return np.take_along_axis(pairs, np.argsort(lengths, axis=1), axis=1)


def analyse_lengths(
    images: np.ndarray,
    texts: np.ndarray,
    image_ids: np.ndarray,
    text_image_ids: np.ndarray,
    pairs: np.ndarray,
    similarity: Similarity,
) -> LengthAnalysis:
    """Ranks images and captions for captions of very different lengths.

    The shorter caption finds the longer one as a text finds images: with an order, E(candidate, query), so
    that the query is the general side.

    Args:
        images: (n, dim) float32 embeddings.
        texts: (m, dim) float32 embeddings.
        image_ids: (n,) int64, distinct.
        text_image_ids: (m,) int64.
        pairs: (pairs, 2) int64 from `length_pairs`.
        similarity: compares the embeddings.

    Raises:
        DataError: as `retrieval_ranks`.
    """
    _, image_ranks = retrieval_ranks(images, texts, image_ids, text_image_ids, similarity)
    candidates = ops.convert_to_tensor(texts)
    longer = []
    for start in range(0, len(pairs), _BLOCK):
        queries, wanted = pairs[start : start + _BLOCK].T
        scores: Any = similarity.scores(candidates, ops.convert_to_tensor(texts[queries]))
        scores = np.array(ops.convert_to_numpy(scores)).T  # (queries, m)
        scores[np.arange(len(queries)), queries] = -np.inf
        positive = np.arange(len(texts))[None] == wanted[:, None]
        longer.append(ops.convert_to_numpy(count_ranks(scores, ops.convert_to_tensor(positive))))
    return LengthAnalysis(pairs, image_ranks + 1, np.concatenate(longer).astype(np.int64) + 1)
