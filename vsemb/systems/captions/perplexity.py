"""Perplexity: how well a model of the next word foresees sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.systems.captions.next_word import NextWordModel


def perplexity(log_likelihoods: np.ndarray | float, count: int) -> float:
    """Returns 2 ** (-(sum of log2 p) / count), pooled over all targets, ends of sentences included.

    Kiros et al. 2014 and the multimodal models before it report it; a model that gives each of V words the
    same probability has perplexity V. Its value is the same in any base.

    Args:
        log_likelihoods: natural logarithms of the probability of each target, of any shape, 0 at padding; or
            their sum.
        count: the number of targets.

    Returns:
        At least 1; infinity if a target has probability 0.

    Raises:
        InvalidArgumentError: for a count < 1.
        DataError: if a logarithm is NaN.

    Example:

    >>> round(perplexity(np.log([0.5, 0.25, 0.125, 0.5]), count=4), 3)
    3.364
    """
    bits = -log2_likelihood(log_likelihoods, count)
    return 2**bits if bits < 1024 else math.inf


def log2_likelihood(log_likelihoods: np.ndarray | float, count: int) -> float:
    """Returns the mean over targets of log2 p: minus the bits a word takes; larger is better.

    Args:
        log_likelihoods: see `perplexity`.
        count: the number of targets.

    Returns:
        At most 0.

    Raises:
        InvalidArgumentError: for a count < 1.
        DataError: if a logarithm is NaN.
    """
    if count < 1:
        raise invalid_argument("count", count, "an integer >= 1")
    total = float(np.sum(log_likelihoods, dtype=np.float64))
    if math.isnan(total):
        raise DataError("The likelihoods hold NaN. The model is broken; nothing was measured.")
    return total / math.log(2) / count


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of sentences under a model.

    Attributes:
        total: natural logarithm of the probability of all of them.
        count: the number of targets, the words of all sentences and an end of each.
    """

    total: float
    count: int

    @property
    def perplexity(self) -> float:
        """See `perplexity`."""
        return perplexity(self.total, self.count)

    @property
    def log2_likelihood(self) -> float:
        """See `log2_likelihood`."""
        return log2_likelihood(self.total, self.count)


class LikelihoodMeasure:
    """Measures the likelihood of sentences in batches, compiled once.

    Args:
        model: the model; weights that change later are seen.

    Example:

        LikelihoodMeasure(model)(sentence_batches(sentences)).perplexity
    """

    def __init__(self, model: NextWordModel) -> None:
        self.model = model
        self._compiled: Any = None

    def __call__(self, batches: Iterable[Mapping[str, Any]]) -> Likelihood:
        """Measures all sentences.

        Args:
            batches: what the model's `log_likelihoods` takes, always of one `element_spec`, as
                `vsemb.systems.captions.sentences.sentence_batches` makes them.

        Raises:
            DataError: if a likelihood is NaN.
        """
        total, count = 0.0, 0
        for batch in batches:
            if self._compiled is None:
                self._compiled = self._compile(batches)
            found = keras.ops.convert_to_numpy(self._compiled(batch))
            total += float(found.sum(dtype=np.float64))
            text = keras.ops.convert_to_numpy(batch["text"])
            count += int(np.count_nonzero(text)) + len(text)
        if math.isnan(total):
            raise DataError("The likelihoods hold NaN. The model is broken; nothing was measured.")
        return Likelihood(total, count)

    def _compile(self, batches: Any) -> Any:
        if keras.backend.backend() != "tensorflow" or not hasattr(batches, "element_spec"):
            return self.model.log_likelihoods
        import tensorflow as tf

        return tf.function(self.model.log_likelihoods, input_signature=[batches.element_spec])


def uniform_likelihood(counts: np.ndarray) -> Likelihood:
    """Returns the likelihood of targets that are all equally likely.

    Args:
        counts: (vocabulary_size,) how often each word is a target, of id 0 the end of a sentence.

    Example:

    >>> uniform_likelihood(np.array([2, 0, 3, 5])).perplexity
    4.0
    """
    count = int(np.sum(counts))
    return Likelihood(-count * math.log(len(counts)), count)


def unigram_likelihood(counts: np.ndarray, training_counts: np.ndarray) -> Likelihood:
    """Returns the likelihood of targets by how frequent each is in training, whatever stands before it.

    Args:
        counts: (vocabulary_size,) how often each word is a target, of id 0 the end of a sentence.
        training_counts: the same of the training sentences; a word that is not there counts one half.

    Example:

    >>> round(unigram_likelihood(np.array([1, 0, 1]), np.array([2, 0, 1])).perplexity, 3)
    2.475
    """
    frequencies = np.maximum(np.asarray(training_counts, np.float64), 0.5)
    logarithms = np.log(frequencies / frequencies.sum())
    return Likelihood(float(np.sum(counts * logarithms)), int(np.sum(counts)))
