"""What all models of the next word share: training and its loss, likelihoods, and writing word by word."""

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

#: Id 0: in front of a sentence it is its start, behind it its end.
START_ID = END_ID = 0
# What a word that was never seen counts, where its logarithm is taken.
_UNSEEN = 0.5


def next_word_log_probs(text: Tensor, logits: Tensor) -> Tensor:
    """Return the logarithm of the probability of each word of a sentence, and of its end.

    Args:
        text: (n, steps) int token ids, 0 = padding, on the right.
        logits: (n, steps + 1, words) scores: at place t those of the word t + 1, given those before it. Word
            0 is the end of the sentence.

    Returns:
        (n, steps + 1) float32 natural logarithms; 0 behind the end.

    Example: of two words and the end, all equally likely, the second sentence has one word less.

    >>> found = next_word_log_probs(ops.array([[1, 2], [2, 0]]), ops.zeros((2, 3, 3)))
    >>> [[round(value, 2) for value in row] for row in found.numpy().tolist()]
    [[-1.1, -1.1, -1.1], [-1.1, -1.1, 0.0]]
    """
    text = ops.cast(text, "int32")
    targets = ops.pad(text, [[0, 0], [0, 1]])
    # The first target always counts: that of a sentence without words is its end.
    counted = ops.pad(ops.not_equal(text, 0), [[0, 0], [1, 0]], constant_values=True)
    entropies = ops.sparse_categorical_crossentropy(targets, ops.cast(logits, "float32"), from_logits=True)
    return ops.where(counted, -entropies, 0.0)


@keras.saving.register_keras_serializable("vsemb")
class NextWordCrossEntropy(Configured, keras.losses.Loss):
    """-sum log p(word | words before it) over a sentence's words and its end.

    The cost of Karpathy & Fei-Fei 2015 (section 3.2, "maximize the log probability assigned to the target
    labels") and of Kiros et al. 2014 (sections 2.3 to 2.5). A sentence weighs as much as it has words.

    Args:
        reduction: over sentences.
        name: name of the loss.

    Call args:
        y_true: (n, steps) int token ids, 0 = padding, on the right.
        y_pred: (n, steps + 1, words) logits, as `NextWordModel` returns them.

    Returns:
        one value a sentence before the reduction, so that Keras scales it for the replicas of a strategy.

    Example: two words and the end, each with probability 1/4.

    >>> round(float(NextWordCrossEntropy()(ops.array([[2, 3]]), ops.zeros((1, 3, 4)))), 4)
    4.1589
    """

    def __init__(self, *, reduction: str = "sum_over_batch_size", name: str = "next_word") -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return -ops.sum(next_word_log_probs(y_true, y_pred), axis=1)


class NextWordModel(Configured, ReplicatedModel):
    """Base of the models that give each word a probability, given those before it.

    A sentence w_1 ... w_T is read as [START, w_1, ..., w_T] and predicts [w_1, ..., w_T, END]; both START and
    END have id 0, as padding has, which no model reads. Words are 2 and up, the unknown word is 1.

    `fit` takes batches of inputs alone (no `y`): a mapping with `text`, (n, steps) int token ids with padding
    on the right, and what the model is conditioned on. Compile with
    `NextWordCrossEntropy`.
    Under a distribution strategy a step equals the single-device step on the whole batch.

    Subclasses write `call`, `start` and `step`, and `build` makes `output_bias`, (vocabulary_size,).

    Args:
        vocabulary_size: number of ids, those of padding (0) and of the unknown word (1) included.
        l2: L2 penalty: this much times half the sum of squares of all trained matrices is added to the loss,
            once a step whatever the batch. Biases and tables of word vectors are left out.
        **kwargs: arguments of `keras.Model`.

    Raises:
        InvalidArgumentError: for a number outside its range.
    """

    def __init__(self, vocabulary_size: Annotated[int, at_least(2)], *, l2: NonNegative = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Return (n, steps + 1, vocabulary_size) float32 logits of each next word."""
        raise NotImplementedError

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state before the first word; every tensor has one row a sentence.

        Args:
            inputs: what the model is conditioned on, without `text`.
        """
        raise NotImplementedError

    def step(self, state: dict[str, Tensor], words: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Read one word more.

        Args:
            state: from `start`, or from the step before.
            words: (rows,) int32, the word written last; 0 in the first step.

        Returns:
            log_probs: (rows, vocabulary_size) float32, natural logarithms of what comes next; column 0 is
                the sentence's end.
            state: of the same structure.
        """
        raise NotImplementedError

    def set_frequencies(self, counts: np.ndarray) -> None:
        """Start the softmax' bias at the logarithms of how often each word is to be written.

        Karpathy & Fei-Fei 2015, section 3.3.

        Args:
            counts: (vocabulary_size,) how often each id is a target in training, see `frequency_bias`.

        Raises:
            InvalidArgumentError: for another number of counts or negative ones.
        """
        if np.shape(counts) != (self.vocabulary_size,):
            raise invalid_argument("counts", np.shape(counts), f"{self.vocabulary_size} numbers")
        self.output_bias.assign(frequency_bias(counts))

    def log_likelihoods(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the logarithm of the probability of every word of `text` and of its end.

        Args:
            inputs: as `call` takes them.

        Returns:
            (n, steps + 1) float32 natural logarithms; 0 at padding.
        """
        return next_word_log_probs(inputs["text"], self(inputs))

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Tensor:
        """Return the compiled loss of `x["text"]` under the logits `y_pred`, and the L2 penalty.

        Raises:
            InvalidArgumentError: if the model was compiled with another loss than `NextWordCrossEntropy`.
        """
        if not isinstance(self.loss, NextWordCrossEntropy):
            fix = "Compile with loss=NextWordCrossEntropy()."
            raise invalid_argument("loss", self.loss, "a vsemb.systems.captions.next_word.NextWordCrossEntropy", fix)
        return self.with_penalties(self.loss(x["text"], y_pred))


def read_ids(text: Tensor) -> Tensor:
    """Return what a model reads of sentences: START and their words.

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
    """Return the first bias of a softmax over words: the logarithm of how often each is a target.

    Karpathy & Fei-Fei 2015, section 3.3. Of relative frequencies all logarithms are shifted by one number,
    which no softmax sees, so that the largest is 0. A word that was never seen counts one half.

    Args:
        counts: (words,) how often each is a target in training; of id 0, the end, once a sentence.

    Returns:
        (words,) float32.

    Raises:
        InvalidArgumentError: for negative counts.

    Example:

    >>> [round(float(bias), 3) for bias in frequency_bias(np.array([10, 0, 20]))]
    [-0.693, -3.689, 0.0]
    """
    counts = np.asarray(counts, np.float64)
    if not (counts >= 0).all():
        raise invalid_argument("counts", counts.min(), "numbers >= 0")
    bias = np.log(np.maximum(counts, _UNSEEN))
    return (bias - bias.max()).astype(np.float32)
