"""Choosing among written captions: what they say and how likely they are (Kiros et al. 2014, supplement)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vsemb.errors import DataError, invalid_argument

Tensor = Any


@dataclass(frozen=True)
class RankingWeights:
    """What the two parts of a caption's score count.

    The score is `translation` times the cosine of image and caption, with the penalty of repeated words, plus
    `language` times the caption's log-probability under the trigram model.

    Attributes:
        translation: weight of the cosine.
        language: weight of the log-probability.
        per_word: whether the log-probability is divided by the number of targets, the words and END, so that
            long captions are not at a disadvantage.

    Raises:
        InvalidArgumentError: for a weight that is negative or not finite.

    Example:

    >>> RankingWeights(language=0.02).to_json()
    {'translation': 1.0, 'language': 0.02, 'per_word': False}
    """

    translation: float = 1.0
    language: float = 0.0
    per_word: bool = False

    def __post_init__(self) -> None:
        for name in ("translation", "language"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise invalid_argument(name, value, "a finite number >= 0")

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> RankingWeights:
        """Rebuilds what `to_json` returned.

        Raises:
            DataError: if it is something else.
        """
        try:
            return cls(float(value["translation"]), float(value["language"]), bool(value["per_word"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"These are no weights of captions: {value!r}.") from error


def repetition_penalty(ids: Tensor, may_repeat: Tensor) -> Tensor:
    """What a caption's cosine is multiplied by where it says a word again and again.

    The paper gives "a multiplicative penalty to non-stopwords that appear too frequently" and no formula.
    Here it is one over how often the most repeated of these words stands in the caption: 1 where none is
    repeated, 1/2 where one stands twice.

    Args:
        ids: (rows, steps) int, 0 = padding.
        may_repeat: (vocabulary,) bool, for which ids repetition costs nothing: the stop words. Padding's
            entry is not looked at.

    Returns:
        (rows,) float32 in (0, 1].

    Example: the word 3 stands three times, and so does the stop word 2.

    >>> stop = tf.constant([True, False, True, False, False])
    >>> repetition_penalty([[2, 3, 2, 4, 2], [2, 3, 3, 2, 3]], stop).numpy().round(2).tolist()
    [1.0, 0.33000001311302185]
    """
    ids = tf.convert_to_tensor(ids)
    counted = (ids != 0) & ~tf.gather(may_repeat, ids)
    same = (ids[:, :, None] == ids[:, None, :]) & counted[:, :, None]
    times = tf.reduce_sum(tf.cast(same, tf.float32), axis=2)  # (rows, steps)
    return 1.0 / tf.maximum(tf.reduce_max(times, axis=1), 1.0)


def ranking_scores(
    cosine: Tensor, penalty: Tensor, language: Tensor, targets: Tensor, weights: RankingWeights
) -> Tensor:
    """Scores captions of one image; higher is better.

    A negative cosine is divided by the penalty, which multiplied would make it better.

    Args:
        cosine: (rows,) float, of image and caption.
        penalty: (rows,) float, of `repetition_penalty`.
        language: (rows,) float, log-probability under the trigram model, natural.
        targets: (rows,) float, number of words and END.
        weights: what each counts.

    Returns:
        (rows,) float32.

    Example:

    >>> pair = tf.constant([0.8, -0.8])
    >>> half, fluent, five = tf.constant([0.5, 0.5]), tf.constant([-10.0, -10.0]), tf.constant([5.0, 5.0])
    >>> ranking_scores(pair, half, fluent, five, RankingWeights(1.0, 0.1, per_word=True)).numpy().round(2)
    array([ 0.2, -1.8], dtype=float32)
    """
    translation = tf.where(cosine > 0, cosine * penalty, cosine / penalty)
    if weights.per_word:
        language = language / targets
    return weights.translation * translation + weights.language * language


def first_of_each(ids: Tensor) -> Tensor:
    """Finds the rows that are not the same as one before them.

    Args:
        ids: (rows, steps) int.

    Returns:
        (different rows,) int32, ascending.

    Example:

    >>> first_of_each(tf.constant([[5, 6], [7, 0], [5, 6], [5, 0]])).numpy().tolist()
    [0, 1, 3]
    """
    kinds, kind = tf.raw_ops.UniqueV2(x=ids, axis=tf.constant([0]))
    return tf.math.unsorted_segment_min(tf.range(tf.shape(ids)[0]), kind, tf.shape(kinds)[0])
