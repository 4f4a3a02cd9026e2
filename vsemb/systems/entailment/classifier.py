"""Classify sentence pairs into three classes, which an order of embeddings cannot tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.models.replicated import ReplicatedModel
from vsemb.parts import Count, Share, Size
from vsemb.systems.entailment.data import CLASSES

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class PairClassifier(Configured, ReplicatedModel):
    """A feed-forward network on two sentence vectors: entailment, neutral or contradiction.

    The baseline of Vendrov et al. 2016, section 5.3. The network reads [u, v, |u - v|], where u is the premise's vector
    and v the hypothesis'. Hidden layers have PReLU units and dropout. Train with `fit` on (inputs, class) and Keras'
    `SparseCategoricalCrossentropy(from_logits=True)`.

    Args:
        text_encoder: layer from token ids to (n, dim), for both sentences.
        units: units of a hidden layer.
        depth: number of hidden layers.
        dropout: share of the inputs of each layer dropped in training.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"premise": (n, steps) int, "hypothesis": (n, steps) int}, token ids, 0 = padding; steps may differ
            between the two.
        training: whether dropout acts.

    Returns:
        (n, 3) float32 logits, in the order of `vsemb.systems.entailment.data.CLASSES`.

    Raises:
        InvalidArgumentError: for an argument out of range.

    Example:

    >>> import numpy as np
    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> model = PairClassifier(LinearSentenceEncoder(WordEmbedding(10, 4)), units=8)
    >>> model({"premise": np.ones((2, 3), int), "hypothesis": np.ones((2, 5), int)}).shape
    TensorShape([2, 3])
    """

    input_names = ("premise", "hypothesis")

    def __init__(
        self,
        text_encoder: keras.layers.Layer,
        units: Size = 1000,
        depth: Count = 2,
        dropout: Share = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        dtype = text_encoder.dtype_policy
        self.network = keras.Sequential(name="network")
        for _ in range(depth):
            self.network.add(keras.layers.Dropout(dropout, dtype=dtype))
            self.network.add(keras.layers.Dense(units, dtype=dtype))
            self.network.add(keras.layers.PReLU(dtype=dtype))
        self.network.add(keras.layers.Dropout(dropout, dtype=dtype))
        self.network.add(keras.layers.Dense(len(CLASSES), dtype="float32"))

    def build(self, input_shape: Any = None) -> None:
        # Token ids of any batch size and length.
        build_layers((self.text_encoder, (None, None)))
        dim = self.text_encoder.compute_output_shape((None, None))[-1]
        build_layers((self.network, (None, 3 * dim)))

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        premises = self.text_encoder(inputs["premise"], training=training)
        hypotheses = self.text_encoder(inputs["hypothesis"], training=training)
        pairs = ops.concatenate([premises, hypotheses, ops.abs(premises - hypotheses)], axis=-1)
        return ops.cast(self.network(pairs, training=training), "float32")
