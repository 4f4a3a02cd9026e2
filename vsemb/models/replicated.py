"""What models need to be trained under a distribution strategy."""

from __future__ import annotations

from typing import Any

import keras


class ReplicatedModel(keras.Model):
    """A model that is built by its shapes alone, so that `fit` need not build it on data.

    Under a strategy Keras builds on the mean of the replicas' first batches, where token ids are
    fractions, and uses up a batch of the first epoch. What is built already needs neither.
    """

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        if self._distribute_strategy is None or not self.built:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        elif self.optimizer is not None and not self.optimizer.built:
            with self._distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
