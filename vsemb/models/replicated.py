"""What models share in training: building under a distribution strategy, and the L2 penalty."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.encoders import WordEmbedding

Tensor = Any


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


def l2_penalties(model: keras.Model, l2: float) -> list[Tensor]:
    """Returns the L2 penalty of each trained matrix that is neither a bias nor a table of word vectors."""
    if not l2:
        return []
    layers = model._flatten_layers(include_self=False)
    tables = {id(layer.table) for layer in layers if isinstance(layer, WordEmbedding)}
    matrices = [
        variable
        for variable in model.trainable_variables
        if len(variable.shape) >= 2 and "bias" not in variable.name and id(variable) not in tables
    ]
    return [0.5 * l2 * ops.sum(ops.square(ops.cast(matrix, "float32"))) for matrix in matrices]
