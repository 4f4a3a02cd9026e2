"""Image-sentence retrieval: recall at K, median and mean rank, in both directions.

The protocol of Hodosh et al. 2013 as Kiros et al. 2014 and all their successors report it: an image
query takes the best rank among its own captions; a caption query has one right image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from vsemb.errors import DataError, invalid_argument
from vsemb.ops.ranks import ranks as count_ranks
from vsemb.similarities import Similarity

RECALLS = (1, 5, 10)
_BLOCK = 1000


@dataclass(frozen=True)
class RetrievalMetrics:
    """The result of `evaluate_retrieval`.

    Attributes:
        image_to_text: `R@1`, `R@5`, `R@10` in percent, `median_rank` and `mean_rank` from 1.
        text_to_image: the same with captions as queries.
        images: number of images ranked.
        texts: number of captions ranked.
        intervals: 95 % bootstrap intervals in the same shape, where asked for.
    """

    image_to_text: dict[str, float]
    text_to_image: dict[str, float]
    images: int
    texts: int
    intervals: dict[str, dict[str, list[float]]] | None = None

    @property
    def recall_sum(self) -> float:
        """The sum of the six recalls, by which checkpoints are chosen."""
        return sum(side[f"R@{k}"] for side in (self.image_to_text, self.text_to_image) for k in RECALLS)

    def to_json(self) -> dict[str, Any]:
        """Returns the metrics as the command line writes them."""
        result: dict[str, Any] = {
            "image_to_text": self.image_to_text,
            "text_to_image": self.text_to_image,
            "images": self.images,
            "texts": self.texts,
        }
        if self.intervals is not None:
            result["intervals_95"] = self.intervals
        return result


def retrieval_ranks(
    images: np.ndarray,
    texts: np.ndarray,
    image_ids: np.ndarray,
    text_image_ids: np.ndarray,
    similarity: Similarity,
    block: int = _BLOCK,
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks in both directions, in blocks of queries.

    Args:
        images: (n, dim) float32 embeddings.
        texts: (m, dim) float32 embeddings.
        image_ids: (n,) int64, distinct.
        text_image_ids: (m,) int64, the id of the image each text describes.
        similarity: scores images against texts.
        block: number of queries scored at a time; memory grows with block x candidates.

    Returns:
        (n,) and (m,) int64 ranks from 0; see `vsemb.ops.ranks.ranks`.

    Raises:
        DataError: for no images, an image without a text, a text without its image, or NaN scores.
    """
    _check(images, texts, image_ids, text_image_ids)
    image_tensor, text_tensor = ops.convert_to_tensor(images), ops.convert_to_tensor(texts)
    of_images, of_texts = [], []
    for start in range(0, len(images), block):
        rows = slice(start, start + block)
        scores = similarity.scores(image_tensor[rows], text_tensor)  # (block, m)
        of_images.append(_block_ranks(scores, image_ids[rows, None] == text_image_ids[None]))
    for start in range(0, len(texts), block):
        rows = slice(start, start + block)
        scores = ops.transpose(similarity.scores(image_tensor, text_tensor[rows]))  # (block, n)
        of_texts.append(_block_ranks(scores, text_image_ids[rows, None] == image_ids[None]))
    return np.concatenate(of_images), np.concatenate(of_texts)


def _block_ranks(scores: Any, positive: np.ndarray) -> np.ndarray:
    if bool(ops.any(ops.isnan(scores))):
        raise DataError("The scores contain NaN. The model or its features are broken; nothing was ranked.")
    return ops.convert_to_numpy(count_ranks(scores, ops.convert_to_tensor(positive))).astype(np.int64)


def _check(images: np.ndarray, texts: np.ndarray, image_ids: np.ndarray, text_image_ids: np.ndarray) -> None:
    if not len(images) or not len(texts):
        raise DataError(f"Retrieval needs images and texts. Received: {len(images)} and {len(texts)}.")
    if len(images) != len(image_ids) or len(texts) != len(text_image_ids):
        raise DataError(
            f"Embeddings and ids differ in number: {len(images)} images with {len(image_ids)} ids, "
            f"{len(texts)} texts with {len(text_image_ids)} ids."
        )
    if len(np.unique(image_ids)) != len(image_ids):
        raise DataError("The ids of the images are not distinct.")
    missing = np.setdiff1d(image_ids, text_image_ids)
    if len(missing):
        raise DataError(f"{len(missing)} images have no text, e.g. id {missing[0]}.")
    missing = np.setdiff1d(text_image_ids, image_ids)
    if len(missing):
        raise DataError(f"{len(missing)} texts describe images that are not there, e.g. id {missing[0]}.")


def rank_metrics(ranks: np.ndarray) -> dict[str, float]:
    """Summarises ranks from 0 as recalls in percent, median and mean rank from 1.

    The median is floor(median) + 1, as the papers' code has it: ranks 0, 1, 2, 3 give 2.

    Example:

    >>> rank_metrics(np.array([0, 1, 2, 3]))["median_rank"]
    2
    """
    result: dict[str, float] = {f"R@{k}": 100.0 * float(np.mean(ranks < k)) for k in RECALLS}
    result["median_rank"] = math.floor(float(np.median(ranks))) + 1
    result["mean_rank"] = float(np.mean(ranks)) + 1
    return result


def evaluate_retrieval(
    images: np.ndarray,
    texts: np.ndarray,
    image_ids: np.ndarray,
    text_image_ids: np.ndarray,
    similarity: Similarity,
    *,
    folds: int = 1,
    bootstrap: int = 0,
    seed: int = 0,
) -> RetrievalMetrics:
    """Measures retrieval in both directions.

    Args:
        images: (n, dim) float32 embeddings.
        texts: (m, dim) float32 embeddings.
        image_ids: (n,) int64, distinct.
        text_image_ids: (m,) int64, the id of the image each text describes.
        similarity: scores images against texts.
        folds: the images are cut into so many contiguous blocks, each ranked on its own with its
            texts, and all metrics, medians too, are averaged (COCO's "5 folds of 1K").
        bootstrap: number of resamplings of the queries for 95 % intervals; 0 for none.
        seed: of the resampling.

    Raises:
        InvalidArgumentError: for folds < 1 or more folds than images, or bootstrap < 0.
        DataError: as `retrieval_ranks`.
    """
    if not 1 <= folds <= max(len(images), 1):
        raise invalid_argument("folds", folds, f"an integer from 1 to {len(images)}, the number of images")
    if bootstrap < 0:
        raise invalid_argument("bootstrap", bootstrap, "an integer >= 0")
    _check(images, texts, image_ids, text_image_ids)
    ranked = []
    for rows in np.array_split(np.arange(len(images)), folds):
        keep = np.isin(text_image_ids, image_ids[rows])
        ranked.append(
            retrieval_ranks(images[rows], texts[keep], image_ids[rows], text_image_ids[keep], similarity)
        )
    sides = [[fold[side] for fold in ranked] for side in (0, 1)]
    to_text, to_image = (_fold_mean(side) for side in sides)
    intervals = None
    if bootstrap:
        names = ("image_to_text", "text_to_image")
        intervals = {n: _intervals(side, bootstrap, seed) for n, side in zip(names, sides, strict=True)}
    return RetrievalMetrics(to_text, to_image, len(images), len(texts), intervals)


def _fold_mean(folds: list[np.ndarray]) -> dict[str, float]:
    each = [rank_metrics(ranks) for ranks in folds]
    return {name: float(np.mean([metrics[name] for metrics in each])) for name in each[0]}


def _intervals(folds: list[np.ndarray], resamplings: int, seed: int) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    drawn = [_fold_mean([generator.choice(ranks, len(ranks)) for ranks in folds]) for _ in range(resamplings)]
    return {
        name: [float(value) for value in np.percentile([metrics[name] for metrics in drawn], [2.5, 97.5])]
        for name in drawn[0]
    }
