"""Likelihoods of many captions for many images, by a multimodal recurrent network.

The state after some words of a caption depends on the image and on these words alone. So captions that begin alike,
such as "a man in a red shirt" and "a man in a boat", share the steps of their first words: captions are sorted, and
each step has one row per image and distinct beginning. A third of the steps of Flickr8k's captions is saved in that
way. Steps have no padding. The image encoder reads each image once, and words are projected once per vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.data.batches import pad_ids
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require
from vsemb.runs.run import Run
from vsemb.systems.captions.captioning import image_inputs
from vsemb.systems.captions.next_word import END_ID, START_ID

# Images that the image encoder reads at a time.
_IMAGES = 64
# Pairs of an image and a caption per batch. A step has at most as many rows of logits.
_PAIRS = 2048


def log_mean(logarithms: np.ndarray) -> np.ndarray:
    """Compute the logarithm of the mean of each column of probabilities.

    Args:
        logarithms: (rows, columns) float, natural logarithms of the probabilities.

    Returns:
        (columns,) float.

    Example: the mean of 1/2 and 1/4 is 3/8.

    >>> round(float(np.exp(log_mean(np.log([[0.5], [0.25]])))[0]), 3)
    0.375
    """
    largest = logarithms.max(axis=0)
    return largest + np.log(np.exp(logarithms - largest).mean(axis=0))


def training_images(run: Run, dataset: StoredDataset, count: int) -> tf.Tensor:
    """Return training images over which the probabilities of captions are averaged, evenly spaced.

    Args:
        run: the run that reads them.
        dataset: a dataset with a split `train`.
        count: number of images; all if there are fewer.

    Returns:
        (count, ...) inputs of the run's model.

    Raises:
        InvalidArgumentError: if the count is below 1.
        DataError: if run and dataset do not match.
    """
    require("prior", count, Count)
    train = dataset.split("train")
    rows = np.linspace(0, len(train) - 1, min(count, len(train))).astype(np.int64)
    return image_inputs(run.images_of(dataset, train), rows)


class Likelihoods:
    """Likelihoods of captions for images, compiled once per run.

    They have the precision of the run's recipe.

    Args:
        run: a run of `multimodal-rnn`.

    Example:

        likelihoods = Likelihoods(run)
        likelihoods.of_all(images, *run.tokenizer.encode(["a dog on a beach", "a cat"]))    # (images, 2)
    """

    def __init__(self, run: Run) -> None:
        self._model = run.model
        self._words = self._model.projected(tf.range(self._model.vocabulary_size))
        self._start = tf.function(lambda images: self._model.start({"image": images}), autograph=False)
        self._step = tf.function(self._stepped, autograph=False, reduce_retracing=True)

    def of_all(self, images: tf.Tensor, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Compute the log-likelihood of every caption for every image, with a progress bar.

        Args:
            images: (n, ...) inputs of the run's model.
            ids: (tokens,) int32, the words of all captions, concatenated.
            offsets: (m + 1,) int64, the place of each caption in `ids`.

        Returns:
            (n, m) float64 natural logarithms, each summed over the caption's words and its end.

        Raises:
            DataError: if one is NaN.
        """
        rows, captions = np.indices((len(images), len(offsets) - 1)).reshape(2, -1)
        return self.of_pairs(images, ids, offsets, rows, captions).reshape(len(images), -1)

    def of_pairs(
        self, images: tf.Tensor, ids: np.ndarray, offsets: np.ndarray, rows: np.ndarray, captions: np.ndarray
    ) -> np.ndarray:
        """Compute the log-likelihoods of pairs of an image and a caption, with a progress bar.

        Args:
            images: (n, ...) inputs of the run's model.
            ids: (tokens,) int32, the words of all captions, concatenated.
            offsets: (m + 1,) int64, the place of each caption in `ids`.
            rows: (pairs,) int, image of each pair.
            captions: (pairs,) int, caption of each pair.

        Returns:
            (pairs,) float64 natural logarithms, each summed over the caption's words and its end.

        Raises:
            DataError: if one is NaN.
        """
        words, lengths = pad_ids(ids, offsets, np.arange(len(offsets) - 1)), np.diff(offsets)
        place = np.empty(len(lengths), np.int64)
        place[np.lexsort(words.T[::-1])] = np.arange(len(lengths))
        order = np.lexsort((place[captions], rows))
        starts = [self._start(images[first : first + _IMAGES]) for first in range(0, len(images), _IMAGES)]
        state = {name: tf.concat([start[name] for start in starts], axis=0) for name in starts[0]}
        likelihoods = np.empty(len(order))
        for start in progress(range(0, len(order), _PAIRS), desc="likelihoods", unit="batch", leave=False):
            pairs = order[start : start + _PAIRS]
            some = captions[pairs]
            likelihoods[pairs] = self._of_sorted(state, rows[pairs], words[some], lengths[some])
        if np.isnan(likelihoods).any():
            raise DataError("The likelihoods hold NaN. The model is broken; nothing was ranked.")
        return likelihoods

    def _of_sorted(
        self, state: dict[str, tf.Tensor], rows: np.ndarray, words: np.ndarray, lengths: np.ndarray
    ) -> np.ndarray:
        """Return the log-likelihoods of pairs that are sorted by image and words."""
        likelihoods = np.zeros(len(rows))
        # Whether a pair has another image or other words so far than the pair before.
        differs = np.append(True, rows[1:] != rows[:-1])
        before = rows  # The row of each pair in the state before the step.
        for step in range(int(lengths.max()) + 1):
            alive = np.flatnonzero(lengths >= step)
            first = alive[differs[alive]]
            row = np.cumsum(differs[alive]) - 1
            read = words[first, step - 1] if step else np.full(len(first), START_ID)
            say = np.where(lengths[alive] > step, words[alive, min(step, words.shape[1] - 1)], END_ID)
            log_probs, state = self._step(state, *map(_int32, (before[first], read, row, say)))
            likelihoods[alive] += log_probs.numpy()
            before = np.zeros(len(rows), np.int64)
            before[alive] = row
            if step < words.shape[1]:
                differs[1:] |= words[1:, step] != words[:-1, step]
        return likelihoods

    def _stepped(
        self, state: dict[str, tf.Tensor], before: tf.Tensor, read: tf.Tensor, rows: tf.Tensor, say: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        state = {name: tf.gather(value, before) for name, value in state.items()}
        log_probs, state = self._model.step_projected(state, tf.gather(self._words, read))
        return tf.gather_nd(log_probs, tf.stack([rows, say], axis=1)), state


def _int32(values: np.ndarray) -> Any:
    return tf.constant(values, tf.int32)
