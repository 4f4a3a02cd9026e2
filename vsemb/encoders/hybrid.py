"""Two sentence encoders in one space."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from vsemb.encoders.words import word_ids
from vsemb.ops.geometry import l2_normalize

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class HybridSentenceEncoder(keras.layers.Layer):
    """Sum of a sequence encoder and a bag of words, each at unit length, the latter with a learned gain.

    At unit length neither drowns the other while they learn at different speeds.

    Args:
        sequence: a sentence encoder that sees the order of words.
        bag: one that does not, of the same size; of the words of a tree it is given the ids alone.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding; or (batch, steps, 2), id and head, for trees.
        training: whether dropout acts.

    Returns:
        (batch, dim).
    """

    def __init__(self, sequence: keras.layers.Layer, bag: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sequence = sequence
        self.bag = bag

    def build(self, input_shape: Any) -> None:
        for encoder, shape in ((self.sequence, input_shape), (self.bag, input_shape[:2])):
            if not encoder.built:
                encoder.build(shape)
        self.gain = self.add_weight(shape=(), initializer="ones", name="gain")

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        sequence = l2_normalize(self.sequence(token_ids, training=training))
        bag = l2_normalize(self.bag(word_ids(token_ids), training=training))
        return ops.cast(sequence + ops.cast(self.gain, "float32") * bag, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.sequence.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name)) for name in ("sequence", "bag")
        }
        return {**super().get_config(), **parts}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> HybridSentenceEncoder:
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in ("sequence", "bag")}
        return cls(**{**config, **parts})
