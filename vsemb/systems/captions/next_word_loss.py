"""Cross entropy of the next word, summed over a sentence."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

Tensor = Any


def next_word_log_probs(text: Tensor, logits: Tensor) -> Tensor:
    """Returns the logarithm of the probability of each word of a sentence, and of its end.

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
class NextWordCrossEntropy(keras.losses.Loss):
    """-sum log p(word | words before it) over a sentence's words and its end.

    The cost of Karpathy & Fei-Fei 2015 (section 3.2, "maximize the log probability assigned to the target
    labels") and of Kiros et al. 2014 (sections 2.3 to 2.5). A sentence weighs as much as it has words.

    Args:
        reduction: over sentences.
        name: name of the loss.

    Call args:
        y_true: (n, steps) int token ids, 0 = padding, on the right.
        y_pred: (n, steps + 1, words) logits, as `vsemb.systems.captions.next_word.NextWordModel` returns
            them.

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

    def get_config(self) -> dict[str, Any]:
        return {"reduction": self.reduction, "name": self.name}
