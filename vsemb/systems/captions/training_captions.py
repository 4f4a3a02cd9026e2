"""Training captions of a model, to which generated captions are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vsemb.errors import invalid_argument
from vsemb.text.normalize import words_of


class NearestSentences(NamedTuple):
    """The training sentence most similar to each caption.

    Attributes:
        rows: (captions,) int64, the first of equally similar sentences; -1 if no sentence shares a word.
        similarities: (captions,) float64, the cosine, in [0, 1].
    """

    rows: np.ndarray
    similarities: np.ndarray


class TrainingCaptions:
    """The training captions of a model, for comparison with generated captions.

    Captions are compared as the words that models read and write, see `vsemb.text.normalize.split_words`. Models cannot
    write the hyphens and apostrophes of training captions.

    Args:
        captions: raw, one or more.

    Raises:
        InvalidArgumentError: if `captions` is empty.

    Example:

    >>> train = TrainingCaptions(["two cats sleep", "A dog runs fast.", "a cat"])
    >>> train.novelty(["a dog runs fast", "a dog runs"]), train.vocabulary
    (50.0, 8)
    >>> nearest = train.nearest(["a dog runs"])
    >>> train.captions[nearest.rows[0]], nearest.similarities.round(2).tolist()
    ('A dog runs fast.', [0.83])
    """

    def __init__(self, captions: Sequence[str]) -> None:
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("captions", captions, "training captions, one or more")
        self.captions = captions
        self._words = [tuple(words) for words in words_of(captions)]

    @cached_property
    def vocabulary(self) -> int:
        """Number of distinct words."""
        return len({word for words in self._words for word in words})

    @cached_property
    def _known(self) -> set[tuple[str, ...]]:
        return set(self._words)

    def novelty(self, captions: Sequence[str]) -> float:
        """Return the percent of captions that differ from every training caption, compared as words.

        Args:
            captions: raw, one or more.

        Raises:
            InvalidArgumentError: if `captions` is empty.

        Example:

        >>> TrainingCaptions(["a dog"]).novelty(["A dog!", "dogs"])
        50.0
        """
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("captions", captions, "captions, one or more")
        return 100 * float(np.mean([tuple(words) not in self._known for words in words_of(captions)]))

    def nearest(self, captions: Sequence[str]) -> NearestSentences:
        """Find the training sentence most similar to each caption by its words.

        Similarity is the cosine of tf-idf vectors over words and pairs of adjacent words. The idf of a feature in df of
        the n training sentences is 1 + ln(n / df).

        Args:
            captions: raw.

        Example:

        >>> TrainingCaptions(["a dog", "the dog"]).nearest(["the dog runs", "cats"]).rows.tolist()
        [1, -1]
        """
        numbers, sentences, weights, bounds, _ = self._index
        rows = np.full(len(captions), -1, np.int64)
        similarities = np.zeros(len(captions))
        for row, vector in enumerate(map(self._vector, words_of(captions))):
            scores = np.zeros(len(self.captions))
            for feature, weight in vector.items():
                number = numbers.get(feature)
                if number is not None:
                    own = slice(bounds[number], bounds[number + 1])
                    scores[sentences[own]] += weight * weights[own]
            best = int(scores.argmax())
            if scores[best] > 0:
                # By rounding, the cosine of a copy may exceed 1.
                rows[row], similarities[row] = best, min(scores[best], 1.0)
        return NearestSentences(rows, similarities)

    def similarities(self, captions: Sequence[str]) -> np.ndarray:
        """Return the similarities of all pairs of captions, see `nearest`: (captions, captions) float64.

        Args:
            captions: raw.

        Example:

        >>> TrainingCaptions(["a dog", "a cat"]).similarities(["a dog", "a dog", "cats"]).round(6).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        vectors = [self._vector(words) for words in words_of(captions)]
        similarities = np.empty((len(vectors), len(vectors)))
        for row, one in enumerate(vectors):
            for column, other in enumerate(vectors):
                similarities[row, column] = sum(weight * other.get(feature, 0.0) for feature, weight in one.items())
        return similarities

    def _vector(self, words: Sequence[str]) -> dict[object, float]:
        """Return the weights of a caption's features, scaled to length 1."""
        numbers, _, _, _, idf = self._index
        unseen = 1 + math.log(len(self.captions))
        weights: dict[object, float] = {}
        for feature in (*words, *pairwise(words)):
            number = numbers.get(feature)
            weights[feature] = weights.get(feature, 0.0) + (unseen if number is None else float(idf[number]))
        length = math.hypot(*weights.values())
        return {feature: weight / length for feature, weight in weights.items()}

    @cached_property
    def _index(self) -> tuple[dict[object, int], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Index from features to sentences: feature numbers, sentences and weights by feature, their bounds, idf."""
        numbers: dict[object, int] = {}
        flat: list[int] = []
        lengths = []
        for words in self._words:
            own = (*words, *pairwise(words))
            flat += [numbers.setdefault(feature, len(numbers)) for feature in own]
            lengths.append(len(own))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        pairs, counts = np.unique(np.asarray(flat, np.int64) * len(lengths) + rows, return_counts=True)
        features, sentences = np.divmod(pairs, len(lengths))
        frequencies = np.bincount(features, minlength=len(numbers))
        idf = 1 + np.log(len(lengths) / np.maximum(frequencies, 1))
        weights = counts * idf[features]
        norms = np.sqrt(np.bincount(sentences, weights=weights**2, minlength=len(lengths)))
        bounds = np.concatenate([[0], np.cumsum(frequencies)])
        return numbers, sentences, weights / norms[sentences], bounds, idf
