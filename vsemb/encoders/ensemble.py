"""An ensemble of encoders whose embeddings are concatenated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.sequence_and_bag import SequenceAndBag
from vsemb.encoders.text_encoder import OuterTextEncoderPart, TextCorpus, TextEncoderPart, TextSpec
from vsemb.errors import invalid_argument
from vsemb.parts import Size

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class EnsembleEncoder(Configured, keras.layers.Layer):
    """Several encoders of the same texts or images; the embedding is theirs, one behind the other.

    Use it with `vsemb.similarities.MeanCosine`, which trains each part with a loss of its own.

    Args:
        members: text encoders or image encoders.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        inputs: what each member reads, such as token ids, (batch, steps) int, 0 = padding.
        training: whether dropout is applied.

    Returns:
        (batch, sum of the members' sizes).

    Example:

    >>> import numpy as np
    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> members = [LinearSentenceEncoder(WordEmbedding(vocabulary_size=10, dim=4)) for _ in range(3)]
    >>> EnsembleEncoder(members)(np.array([[2, 3, 0]])).shape
    TensorShape([1, 12])
    """

    def __init__(self, members: list[keras.layers.Layer], **kwargs: Any) -> None:
        # Each member casts what it reads.
        super().__init__(**{"autocast": False, **kwargs})
        self.keep_arguments(locals())

    @property
    def dim(self) -> int:
        """Size of the embedding."""
        return sum(member.dim for member in self.members)

    def build(self, input_shape: Any) -> None:
        build_layers(*((member, input_shape) for member in self.members), dtype="int32")

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return ops.concatenate([member(inputs, training=training) for member in self.members], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        sizes = [member.compute_output_shape(input_shape)[-1] for member in self.members]
        return input_shape[0], sum(sizes)


@dataclass(frozen=True)
class Ensemble(OuterTextEncoderPart, kind="ensemble"):
    """Several encoders of one kind with random weights of their own; use it with the similarity `mean-cosine`.

    Attributes:
        encoder: the encoder; the size of its embedding is the recipe's `embedding_dim`, divided by `members`.
        members: number of encoders.
    """

    encoder: TextEncoderPart = field(default_factory=SequenceAndBag)
    members: Size = 3

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> EnsembleEncoder:
        if dim is None or dim % self.members:
            raise invalid_argument("embedding_dim", dim, f"a multiple of text.encoder.members={self.members}")
        members = [self.encoder.build(dim // self.members, spec, dtype) for _ in range(self.members)]
        return EnsembleEncoder(members, dtype=dtype)

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        for member in layer.members:
            self.encoder.initialize(member, corpus)
