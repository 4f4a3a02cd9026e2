"""Training batches of sentence pairs, bucketed by length.

Everything random in an epoch follows from (seed, epoch), as in `vsemb.data.batches`, so that training can
go on in the middle of one exactly where it stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from vsemb.data.batches import bucketed
from vsemb.errors import DataError, invalid_argument
from vsemb.systems.entailment.data import EntailmentSplit


class SentencePairBatches:
    """Batches of (inputs, label) for `EntailmentModel.fit`.

    The inputs are {"premise": (n, steps) int32, "hypothesis": (n, steps) int32}, each padded to its own
    longest; the label, (n,) int32, is 1 for entailment.

    Args:
        split: the split, usually `train`.
        batch_size: pairs a batch; what is left over in an epoch is dropped, each time another part.
        seed: of the order.

    Raises:
        InvalidArgumentError: for a batch size < 1.
        DataError: if the split has fewer pairs than a batch.

    Example:

        batches = SentencePairBatches(splits["train"], batch_size=128)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(self, split: EntailmentSplit, *, batch_size: int = 128, seed: int = 0) -> None:
        if batch_size < 1:
            raise invalid_argument("batch_size", batch_size, "an integer >= 1")
        self.split = split
        self.batch_size = batch_size
        self.seed = seed
        self.steps_per_epoch = len(split) // batch_size
        if self.steps_per_epoch == 0:
            raise DataError(
                f"Split {split.name!r} has {len(split)} pairs, fewer than batch_size={batch_size}. "
                "Lower the batch size."
            )
        self._labels = split.labels
        self._lengths = (split.premises.lengths, split.hypotheses.lengths)

    def plan(self, epoch: int) -> np.ndarray:
        """Returns the pair numbers of an epoch's batches, (steps, batch_size) int64."""
        generator = np.random.default_rng([self.seed, epoch])
        # By premise, which is the longer side, and by hypothesis among premises of one length.
        return bucketed(generator.permutation(len(self.split)), generator, self.batch_size, *self._lengths)

    def dataset(self, epoch: int = 0, step: int = 0) -> tf.data.Dataset:
        """Returns a dataset that gives the next epoch each time it is iterated.

        Args:
            epoch: the number of the first epoch.
            step: batches of that epoch to leave out; iterate such a dataset once, see
                `vsemb.data.PairBatches.dataset`.
        """
        epochs = itertools.count(epoch)
        split = self.split

        def one_epoch() -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
            for rows in self.plan(next(epochs))[step:]:
                inputs = {"premise": split.premises.padded(rows), "hypothesis": split.hypotheses.padded(rows)}
                yield inputs, self._labels[rows]

        text = tf.TensorSpec((self.batch_size, None), tf.int32)
        signature = ({"premise": text, "hypothesis": text}, tf.TensorSpec((self.batch_size,), tf.int32))
        dataset = tf.data.Dataset.from_generator(one_epoch, output_signature=signature)
        return dataset.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch - step)).prefetch(2)
