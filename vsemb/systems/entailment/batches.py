"""Training batches of sentence pairs, bucketed by length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vsemb.data.batches import BatchSource
from vsemb.parts import Count, Part
from vsemb.systems.entailment.data import EntailmentSplit


@dataclass(frozen=True)
class PairBatching(Part):
    """How sentence pairs become batches.

    Attributes:
        size: pairs per batch, over all devices.
    """

    size: Count = 128


class SentencePairBatches(BatchSource):
    """Batches of (inputs, label) for `EntailmentModel.fit`.

    The inputs are {"premise": (n, steps) int32, "hypothesis": (n, steps) int32}, each padded to its own
    longest; the label, (n,) int32, is 1 for entailment.

    Args:
        split: the split, usually `train`.
        batch_size: pairs per batch; those left over in an epoch are dropped, each time others.
        seed: of the order.

    Raises:
        InvalidArgumentError: for a batch size < 1.
        DataError: if the split has fewer pairs than a batch.

    Example:

        batches = SentencePairBatches(splits["train"], batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(self, split: EntailmentSplit, *, batch_size: int = 128, seed: int = 0) -> None:
        # By premise, which is the longer side, and by hypothesis among premises of one length.
        lengths = [split.premises.lengths, split.hypotheses.lengths]
        super().__init__(lengths, batch_size=batch_size, seed=seed, unit=f"pairs of the split {split.name!r}")
        self.split = split
        self._labels = split.labels

    def gather(self, rows: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns the inputs and labels of a batch."""
        split = self.split
        inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
        return inputs, self._labels[rows]

    def signature(self) -> Any:
        """Returns the specification of a batch."""
        text = tf.TensorSpec((self.batch_size, None), tf.int32)
        return {"premise": text, "hypothesis": text}, tf.TensorSpec((self.batch_size,), tf.int32)
