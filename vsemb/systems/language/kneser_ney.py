"""Trigram language model with Kneser-Ney smoothing, for the log-probability of sentences.

R. Kneser, H. Ney 1995, in the interpolated form of S. Chen, J. Goodman 1999 with one discount.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vsemb.errors import DataError, invalid_argument
from vsemb.ops.tensorflow import tf

# A key of three words has 63 bits, 21 per word.
_MOST_WORDS = 1 << 21

_BY_KEY = {"trigram_values": "trigram_keys", "context_weights": "context_keys", "bigram_values": "bigram_keys"}
_KEYS = tuple(_BY_KEY.values())
# The first three are values of the keys above, the others are values per word.
_VALUES = (*_BY_KEY, "word_weights", "word_values")


class KneserNeyTrigram(tf.Module):
    r"""Trigram model with interpolated Kneser-Ney smoothing.

    c is the count of a trigram, D the discount and N(. v w) the number of distinct words seen before the pair v w.

    `p(w | u v) = max(c(u v w) - D, 0) / c(u v .) + D N(u v .) / c(u v .) p(w | v)`

    `p(w | v) = max(N(. v w) - D, 0) / N(. v .) + D N(v .) / N(. v .) p(w)`

    `p(w) = N(. w) / N(. .)`

    For an unseen context the shorter context is used. A sentence is preceded by two START and followed by one END.
    As in all next-word models of vsemb, id 0 is START as input and END as prediction. Probabilities of END and the
    words seen in training sum to 1. An unseen word is not part of this sum. Its p(w) is (1 - D) / N(. .), less than for
    any seen word.

    `fit` creates a model. In a graph, values are found by binary search in sorted arrays. The arrays are variables
    instead of lookup tables, so that a SavedModel contains them.

    Args:
        arrays: result of `arrays`.

    Raises:
        DataError: if the arrays are inconsistent.

    Example:

    >>> words = np.array([2, 3, 2, 4])  # Two sentences of two words.
    >>> model = KneserNeyTrigram.fit(words, np.array([0, 2, 4]), vocabulary_size=5)
    >>> print(model.log_probs([[2, 3], [3, 2], [2, 0]]).numpy().round(3))
    [-1.772 -5.979 -1.747]
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        _check(arrays)
        dtypes = {**dict.fromkeys(_KEYS, tf.int64), **dict.fromkeys(_VALUES, tf.float32)}
        for name, dtype in dtypes.items():
            setattr(self, name, tf.Variable(arrays[name], trainable=False, dtype=dtype, name=name))
        self.vocabulary_size = len(arrays["word_values"])

    @classmethod
    def fit(
        cls, ids: np.ndarray, offsets: np.ndarray, vocabulary_size: int, discount: float = 0.75
    ) -> KneserNeyTrigram:
        """Fit a model to sentences.

        Args:
            ids: (words,) int >= 1, concatenated sentences from `Tokenizer.encode`; the unknown word (1) is counted as
                a word.
            offsets: (sentences + 1,) int; sentence i is `ids[offsets[i]:offsets[i + 1]]`.
            vocabulary_size: number of ids.
            discount: D, subtracted from every count; default 0.75.

        Raises:
            InvalidArgumentError: for ids outside the vocabulary, an empty list of sentences, a discount outside
                (0, 1), or a vocabulary of more than 2,097,152 words.
        """
        ids, offsets = np.asarray(ids, np.int64), np.asarray(offsets, np.int64)
        if not 0 < discount < 1:
            raise invalid_argument("discount", discount, "a number between 0 and 1")
        if not 2 <= vocabulary_size <= _MOST_WORDS:
            raise invalid_argument("vocabulary_size", vocabulary_size, f"an integer from 2 to {_MOST_WORDS}")
        if len(offsets) < 2:
            raise invalid_argument("offsets", len(offsets), "at least one sentence")
        if len(ids) and not (ids.min() >= 1 and ids.max() < vocabulary_size):
            received = (int(ids.min()), int(ids.max()))
            raise invalid_argument("ids", received, f"ids from 1 to vocabulary_size - 1 = {vocabulary_size - 1}")
        size = np.int64(vocabulary_size)
        trigrams, counts = np.unique(_trigrams(ids, offsets, size), return_counts=True)
        bigrams, before = np.unique(trigrams % (size * size), return_counts=True)
        contexts, first, followers = np.unique(trigrams // size, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, first)
        pair_totals = np.bincount(bigrams // size, before, vocabulary_size)
        pair_followers = np.bincount(bigrams // size, minlength=vocabulary_size)
        words = np.bincount(bigrams % size, minlength=vocabulary_size)
        weights = np.divide(discount * pair_followers, pair_totals, out=np.ones(vocabulary_size), where=pair_totals > 0)
        return cls(
            {
                "trigram_keys": trigrams,
                "trigram_values": (counts - discount) / np.repeat(totals, followers),
                "context_keys": contexts,
                "context_weights": discount * followers / totals,
                "bigram_keys": bigrams,
                "bigram_values": (before - discount) / pair_totals[bigrams // size],
                "word_weights": weights,
                "word_values": np.where(words > 0, words, 1 - discount) / len(bigrams),
            }
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the model for storage: name -> one-dimensional array."""
        return {name: getattr(self, name).numpy() for name in (*_KEYS, *_VALUES)}

    def log_probs(self, ids: tf.Tensor) -> tf.Tensor:
        """Compute the log-probability of sentences, in graph.

        Args:
            ids: (rows, steps) int < vocabulary size, padded on the right with 0.

        Returns:
            (rows,) float32, natural logarithm of the probability of the words and END.
        """
        return tf.reduce_sum(self.word_log_probs(ids), axis=1)

    def word_log_probs(self, ids: tf.Tensor) -> tf.Tensor:
        """Compute the log-probability of each word and of END, in graph.

        Args:
            ids: see `log_probs`.

        Returns:
            (rows, steps + 1) float32, natural logarithm; 0 after END.
        """
        ids = tf.cast(tf.convert_to_tensor(ids), tf.int64)
        steps = tf.shape(ids)[1]
        sentences = tf.pad(ids, [[0, 0], [2, 1]])
        earlier, last, word = sentences[:, :-2], sentences[:, 1:-1], sentences[:, 2:]
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        real = tf.range(steps + 1) <= lengths[:, None]
        return tf.where(real, tf.math.log(self._probabilities(earlier, last, word)), 0.0)

    def _probabilities(self, earlier: tf.Tensor, last: tf.Tensor, word: tf.Tensor) -> tf.Tensor:
        size = tf.constant(self.vocabulary_size, tf.int64)
        context = earlier * size + last
        alone = tf.gather(self.word_values, word)
        after_one = _lookup(self.bigram_keys, self.bigram_values, last * size + word, 0.0)
        after_one += tf.gather(self.word_weights, last) * alone
        after_two = _lookup(self.trigram_keys, self.trigram_values, context * size + word, 0.0)
        return after_two + _lookup(self.context_keys, self.context_weights, context, 1.0) * after_one


def _trigrams(ids: np.ndarray, offsets: np.ndarray, size: np.int64) -> np.ndarray:
    """Return the trigram keys of all words and ENDs, (words + sentences,) int64."""
    lengths = np.diff(offsets)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    padded = np.zeros(len(ids) + 3 * len(lengths), np.int64)
    padded[np.arange(len(ids)) + 3 * sentence + 2] = ids
    starts = offsets[:-1] - offsets[0] + 3 * np.arange(len(lengths))
    predicted = np.ones(len(padded), bool)
    predicted[starts] = predicted[starts + 1] = False
    places = np.flatnonzero(predicted)
    return (padded[places - 2] * size + padded[places - 1]) * size + padded[places]


def _lookup(keys: tf.Variable, values: tf.Variable, wanted: tf.Tensor, missing: float) -> tf.Tensor:
    """Find values by binary search; `keys` are sorted, `wanted` has any shape."""
    flat = tf.reshape(wanted, [-1])
    place = tf.minimum(tf.searchsorted(keys, flat), tf.shape(keys)[0] - 1)
    values = tf.where(tf.gather(keys, place) == flat, tf.gather(values, place), missing)
    return tf.reshape(values, tf.shape(wanted))


def _check(arrays: Mapping[str, np.ndarray]) -> None:
    lacking = {*_KEYS, *_VALUES} - set(arrays)
    if lacking:
        raise DataError(f"The trigram model lacks {', '.join(sorted(lacking))}; prepare the run again.")
    paired = all(arrays[name].shape == arrays[key].shape for name, key in _BY_KEY.items())
    sized = arrays["word_weights"].shape == arrays["word_values"].shape
    flat = all(arrays[name].ndim == 1 and len(arrays[name]) for name in (*_KEYS, *_VALUES))
    if not (paired and sized and flat) or not all(np.all(np.diff(arrays[name]) > 0) for name in _KEYS):
        raise DataError("The arrays of the trigram model do not belong together; prepare the run again.")
