"""What all models of the next word share: training, likelihoods, and writing word by word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from vsemb.errors import invalid_argument
from vsemb.models.replicated import ReplicatedModel, l2_penalties
from vsemb.ops.replicas import replica_count
from vsemb.systems.captions.next_word_loss import NextWordCrossEntropy, next_word_log_probs

Tensor = Any

#: Id 0: in front of a sentence it is its start, behind it its end.
START_ID = END_ID = 0
# What a word that was never seen counts, where its logarithm is taken.
_UNSEEN = 0.5


class NextWordModel(ReplicatedModel):
    """Base of the models that give each word a probability, given those before it.

    A sentence w_1 ... w_T is read as [START, w_1, ..., w_T] and predicts [w_1, ..., w_T, END]; both START and
    END have id 0, as padding has, which no model reads. Words are 2 and up, the unknown word is 1.

    `fit` takes batches of inputs alone (no `y`): a mapping with `text`, (n, steps) int token ids with padding
    on the right, and what the model is conditioned on. Compile with
    `vsemb.systems.captions.next_word_loss.NextWordCrossEntropy`.
    Under a distribution strategy a step equals the single-device step on the whole batch.

    Subclasses write `call`, `start` and `step`.

    Args:
        vocabulary_size: number of ids, those of padding (0) and of the unknown word (1) included.
        l2: L2 penalty: this much times half the sum of squares of all trained matrices is added to the loss,
            once a step whatever the batch. Biases and tables of word vectors are left out.
        **kwargs: arguments of `keras.Model`.

    Raises:
        InvalidArgumentError: for a number outside its range.
    """

    def __init__(self, vocabulary_size: int, *, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if vocabulary_size < 2:
            raise invalid_argument("vocabulary_size", vocabulary_size, "an integer >= 2")
        if not 0 <= l2 < math.inf:
            raise invalid_argument("l2", l2, "a finite number >= 0")
        self.vocabulary_size = vocabulary_size
        self.l2 = l2

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """Returns (n, steps + 1, vocabulary_size) float32 logits of each next word."""
        raise NotImplementedError

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the state before the first word; every tensor has one row a sentence.

        Args:
            inputs: what the model is conditioned on, without `text`.
        """
        raise NotImplementedError

    def step(self, state: dict[str, Tensor], words: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Reads one word more.

        Args:
            state: from `start`, or from the step before.
            words: (rows,) int32, the word written last; 0 in the first step.

        Returns:
            log_probs: (rows, vocabulary_size) float32, natural logarithms of what comes next; column 0 is
                the sentence's end.
            state: of the same structure.
        """
        raise NotImplementedError

    def log_likelihoods(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns the logarithm of the probability of every word of `text` and of its end.

        Args:
            inputs: as `call` takes them.

        Returns:
            (n, steps + 1) float32 natural logarithms; 0 at padding.
        """
        return next_word_log_probs(inputs["text"], self(inputs))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the compiled loss of `x["text"]` under the logits `y_pred`, and the L2 penalty.

        Raises:
            InvalidArgumentError: if the model was compiled with another loss than `NextWordCrossEntropy`.
        """
        del y, sample_weight, training
        if not isinstance(self.loss, NextWordCrossEntropy):
            fix = "Compile with loss=NextWordCrossEntropy()."
            raise invalid_argument(
                "loss", self.loss, "a vsemb.systems.captions.next_word_loss.NextWordCrossEntropy", fix
            )
        loss = self.loss(x["text"], y_pred)
        for extra in [*self.losses, *l2_penalties(self, self.l2)]:
            # A regulariser is the same on each replica, and the replicas' losses are summed.
            loss = loss + ops.cast(extra, loss.dtype) / replica_count()
        return loss

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size, "l2": self.l2}


def read_ids(text: Tensor) -> Tensor:
    """Returns what a model reads of sentences: START and their words.

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
    """Returns the first bias of a softmax over words: the logarithm of how often each is a target.

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
