"""Base of next-word models: training and its loss, likelihoods, and generation word by word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.errors import invalid_argument
from vsemb.models.replicated import ReplicatedModel
from vsemb.parts import NonNegative, at_least

Tensor = Any

#: Id 0: START before a sentence, END after it.
START_ID = END_ID = 0
# Count of an unseen word before its logarithm is taken.
_UNSEEN = 0.5


def next_word_log_probs(text: Tensor, logits: Tensor) -> Tensor:
    """Compute the logarithm of the probability of each word of a sentence, and of its end.

    Args:
        text: (n, steps) int token ids, 0 = padding, on the right.
        logits: (n, steps + 1, words) float; position t scores word t + 1, given the words before it. Id 0 is the end of
            the sentence.

    Returns:
        (n, steps + 1) float32 natural logarithms; 0 after the end.

    Example: two words and the end, all equally probable. The second sentence has one word less.

    >>> log_probs = next_word_log_probs(ops.array([[1, 2], [2, 0]]), ops.zeros((2, 3, 3)))
    >>> [[round(value, 2) for value in row] for row in log_probs.numpy().tolist()]
    [[-1.1, -1.1, -1.1], [-1.1, -1.1, 0.0]]
    """
    text = ops.cast(text, "int32")
    targets = ops.pad(text, [[0, 0], [0, 1]])
    # The first target always counts: in a sentence without words it is the end.
    counted = ops.pad(ops.not_equal(text, 0), [[0, 0], [1, 0]], constant_values=True)
    entropies = ops.sparse_categorical_crossentropy(targets, ops.cast(logits, "float32"), from_logits=True)
    return ops.where(counted, -entropies, 0.0)


@keras.saving.register_keras_serializable("vsemb")
class NextWordCrossEntropy(Configured, keras.losses.Loss):
    """-sum log p(word | words before it) over a sentence's words and its end.

    The cost of Karpathy & Fei-Fei 2015 (section 3.2, "maximize the log probability assigned to the target
    labels") and of Kiros et al. 2014 (sections 2.3 to 2.5). Longer sentences weigh more, since words are summed.

    Args:
        reduction: Keras reduction over sentences; default `sum_over_batch_size`.
        name: name of the loss.

    Call args:
        y_true: (n, steps) int token ids, 0 = padding, on the right.
        y_pred: (n, steps + 1, words) logits of a `NextWordModel`.

    Returns:
        one value per sentence before the reduction, so that Keras scales it for the replicas of a strategy.

    Example: two words and the end, each with probability 1/4.

    >>> round(float(NextWordCrossEntropy()(ops.array([[2, 3]]), ops.zeros((1, 3, 4)))), 4)
    4.1589
    """

    def __init__(self, *, reduction: str = "sum_over_batch_size", name: str = "next_word") -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return -ops.sum(next_word_log_probs(y_true, y_pred), axis=1)


class NextWordModel(Configured, ReplicatedModel):
    """Base of next-word models, which predict the probability of each word from the words before it.

    The input of a sentence w_1 ... w_T is [START, w_1, ..., w_T], and its targets are [w_1, ..., w_T, END]. START, END
    and padding have id 0; models ignore padding. The unknown word is 1, and other words are 2 and up.

    `fit` takes batches of inputs only (no `y`): a mapping with `text`, (n, steps) int token ids with padding on the
    right, and the inputs that the model is conditioned on. Compile with `NextWordCrossEntropy`. Under a distribution
    strategy a step equals the single-device step on the whole batch.

    Subclasses define `call`, `start` and `step`; their `build` creates `output_bias`, (vocabulary_size,).

    Args:
        vocabulary_size: number of ids, including padding (0) and the unknown word (1).
        l2: weight of the L2 penalty; default 0. l2 times half the sum of squares of all trained matrices is added to
            the loss, once per step for any batch size. Biases and tables of word vectors are left out.
        **kwargs: arguments of `keras.Model`.

    Raises:
        InvalidArgumentError: if a number is out of range.
    """

    def __init__(self, vocabulary_size: Annotated[int, at_least(2)], *, l2: NonNegative = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Compute the logits of each next word, (n, steps + 1, vocabulary_size) float32."""
        raise NotImplementedError

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state before the first word, with one row per sentence in every tensor.

        Args:
            inputs: inputs that the model is conditioned on, without `text`.
        """
        raise NotImplementedError

    def step(self, state: dict[str, Tensor], words: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Read the next word.

        Args:
            state: state of `start`, or of the previous step.
            words: (rows,) int32, the last word; 0 in the first step.

        Returns:
            log_probs: (rows, vocabulary_size) float32, natural logarithms of the probability of each next word; column
                0 is the end of the sentence.
            state: the new state, of the same structure.
        """
        raise NotImplementedError

    def set_frequencies(self, counts: np.ndarray) -> None:
        """Set the softmax bias to the logarithms of word frequencies (Karpathy & Fei-Fei 2015, section 3.3).

        Args:
            counts: (vocabulary_size,) number of times that each id is a target in training, see `frequency_bias`.

        Raises:
            InvalidArgumentError: if the number of counts differs from `vocabulary_size`, or a count is negative.
        """
        if np.shape(counts) != (self.vocabulary_size,):
            raise invalid_argument("counts", np.shape(counts), f"{self.vocabulary_size} numbers")
        self.output_bias.assign(frequency_bias(counts))

    def log_likelihoods(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Compute the logarithm of the probability of every word of `text` and of its end.

        Args:
            inputs: see `call`.

        Returns:
            (n, steps + 1) float32 natural logarithms; 0 at padding.
        """
        return next_word_log_probs(inputs["text"], self(inputs))

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Compute the compiled loss of `x["text"]` under the logits `y_pred`, plus the L2 penalty.

        Raises:
            InvalidArgumentError: if the model was compiled with another loss than `NextWordCrossEntropy`.
        """
        if not isinstance(self.loss, NextWordCrossEntropy):
            fix = "Compile with loss=NextWordCrossEntropy()."
            raise invalid_argument("loss", self.loss, "a vsemb.systems.captions.next_word.NextWordCrossEntropy", fix)
        for name, value in {"y": y, "sample_weight": sample_weight}.items():
            if value is not None:
                fix = "The words are in x: fit({'image': …, 'text': …})."
                raise invalid_argument(name, type(value).__name__, "omitted", fix)
        weights = self.row_weights(ops.shape(y_pred)[0])
        return self.with_penalties(self.loss(x["text"], y_pred, sample_weight=weights))


def read_ids(text: Tensor) -> Tensor:
    """Return the input ids of sentences: START and the words.

    Args:
        text: (n, steps) int token ids.

    Returns:
        (n, steps + 1) int32.

    Example:

    >>> read_ids(ops.array([[5, 6], [7, 0]])).numpy().tolist()
    [[0, 5, 6], [0, 7, 0]]
    """
    return ops.pad(ops.cast(text, "int32"), [[0, 0], [1, 0]])


def frequency_bias(counts: np.ndarray) -> np.ndarray:
    """Compute the initial bias of a softmax over words, the log frequency of each as a target.

    The logarithms are shifted so that the largest is 0, which does not change the softmax. The count of an unseen word
    is one half.

    Args:
        counts: (words,) number of times that each id is a target in training; id 0, the end, once per sentence.

    Returns:
        (words,) float32.

    Raises:
        InvalidArgumentError: if a count is negative.

    Reference:
        Karpathy & Fei-Fei 2015, section 3.3.

    Example:

    >>> [round(float(bias), 3) for bias in frequency_bias(np.array([10, 0, 20]))]
    [-0.693, -3.689, 0.0]
    """
    counts = np.asarray(counts, np.float64)
    if not (counts >= 0).all():
        raise invalid_argument("counts", counts.min(), "numbers >= 0")
    bias = np.log(np.maximum(counts, _UNSEEN))
    return (bias - bias.max()).astype(np.float32)
