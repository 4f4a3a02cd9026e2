"""Retrieval by the likelihood of captions, as in m-RNN (Mao et al. 2014; a row of Kiros et al. 2014, tables 1, 2).

The score of an image and a caption is log p(caption | image) - log p(caption), where p(caption) is the mean of
p(caption | image) over some training images. Without the second term, common captions would be first for every image.
For a given caption the term is constant, so images are ranked by p(caption | image) alone.
"""

from __future__ import annotations

import numpy as np

from vsemb.data.store import StoredDataset
from vsemb.errors import invalid_argument
from vsemb.evaluation.retrieval import RetrievalMetrics, rank_metrics
from vsemb.ops.tensorflow import tf
from vsemb.runs.run import Run
from vsemb.systems.captions.captioning import image_inputs
from vsemb.systems.captions.likelihoods import Likelihoods, log_mean, training_images


def measure_ranking(
    run: Run, dataset: StoredDataset, split: str = "val", *, first: int | None = None, prior: int = 100
) -> RetrievalMetrics:
    """Rank captions for images, and images for captions, by the likelihoods of a caption model.

    Every caption is scored for every image, which takes a minute for 100 images with 500 captions on a CPU core.

    Args:
        run: a run of `multimodal-rnn`.
        dataset: the dataset, with a split `train`.
        split: name of the split; default `val`.
        first: number of first images to rank, with their captions; None for all.
        prior: number of training images for p(caption), default 100; all if there are fewer.

    Returns:
        The metrics, as of `vsemb.evaluation.evaluate_retrieval`.

    Raises:
        InvalidArgumentError: if a number is out of range.
        DataError: if a likelihood is NaN.

    Example:

        measure_ranking(Run.open("runs/captions"), Dataset.open("data/flickr8k"), first=100)
    """
    part = dataset.split(split)
    first = len(part) if first is None else first
    if not 1 <= first <= len(part):
        raise invalid_argument("first", first, f"an integer from 1 to {len(part)}, the number of images")
    of_prior = training_images(run, dataset, prior)
    own = part.caption_rows[: part.caption_offsets[first]]
    tokens = run.tokenizer.encode(part.captions[: len(own)])
    images = image_inputs(run.images_of(dataset, part), np.arange(first))
    likelihoods = Likelihoods(run).of_all(tf.concat([images, of_prior], axis=0), *tokens)
    scores = likelihoods[:first] - log_mean(likelihoods[first:])
    of_images, of_captions = score_ranks(scores, own)
    return RetrievalMetrics(rank_metrics(of_images), rank_metrics(of_captions), first, len(own))


def score_ranks(scores: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank in both directions by given scores, with ties against the model.

    Args:
        scores: (images, captions) float.
        own: (captions,) int, the row of each caption's image.

    Returns:
        (images,) and (captions,) int64 ranks from 0, as of `vsemb.evaluation.retrieval_ranks`.

    Example: the second caption of image 0 is below the caption of image 1.

    >>> score_ranks(np.array([[3.0, 1.0, 2.0], [0.0, 1.0, 4.0]]), np.array([0, 0, 1]))
    (array([0, 0]), array([0, 1, 0]))
    """
    reached = scores[own, np.arange(len(own))]
    best = np.full(len(scores), -np.inf)
    np.maximum.at(best, own, reached)
    ties = np.bincount(own, reached >= best[own], len(scores)).astype(np.int64)
    of_images = np.count_nonzero(scores >= best[:, None], axis=1) - ties
    return of_images, np.count_nonzero(scores >= reached, axis=0) - 1
