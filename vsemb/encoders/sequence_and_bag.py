"""A sequence encoder combined with a bag of words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.bag import BagOfWordsEncoder
from vsemb.encoders.recurrent import Recurrent
from vsemb.encoders.text_encoder import TextCorpus, TextEncoderPart, TextSpec, WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.ops.geometry import l2_normalize
from vsemb.parts import Share

if TYPE_CHECKING:
    from vsemb.text.tokenizers import TokenizerPart

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class SequenceAndBagEncoder(Configured, keras.layers.Layer):
    """Sum of a sequence encoder and a bag of words, both scaled to unit length; the bag has a learned gain.

    The unit length keeps the two encoders balanced while they learn at different speeds.

    Args:
        sequence: a sentence encoder that depends on word order.
        bag: a sentence encoder of the same size that does not.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding; or (batch, steps, n), tokens whose first number is the id.
        training: whether dropout is applied.

    Returns:
        (batch, dim).
    """

    def __init__(self, sequence: keras.layers.Layer, bag: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())

    @property
    def words(self) -> WordEmbedding:
        """The word vectors of the sequence encoder."""
        return self.sequence.words

    @property
    def dim(self) -> int:
        """Size of the embedding."""
        return self.sequence.dim

    def build(self, input_shape: Any) -> None:
        build_layers((self.sequence, input_shape), (self.bag, input_shape))
        self.gain = self.add_weight(shape=(), initializer="ones", name="gain")

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        sequence = l2_normalize(self.sequence(token_ids, training=training))
        bag = l2_normalize(self.bag(token_ids, training=training))
        return ops.cast(sequence + ops.cast(self.gain, "float32") * bag, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.sequence.compute_output_shape(input_shape)


@dataclass(frozen=True)
class SequenceAndBag(TextEncoderPart, kind="sequence-and-bag"):
    """A sequence or tree encoder combined with a bag of words.

    Attributes:
        sequence: the encoder that depends on word order.
        bag_dropout: share of words dropped from the bag in training.
    """

    sequence: TextEncoderPart = field(default_factory=Recurrent)
    bag_dropout: Share = 0.0

    def check(self) -> None:
        if self.sequence.produces != "vector":
            raise invalid_argument("text.encoder.sequence", self.sequence.kind, "an encoder of one vector per text")

    def check_tokenizer(self, tokenizer: TokenizerPart) -> None:
        self.sequence.check_tokenizer(tokenizer)

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> SequenceAndBagEncoder:
        sequence = self.sequence.build(dim, spec, dtype)
        size = sequence.compute_output_shape((None, None))[-1] if dim is None else dim
        bag = BagOfWordsEncoder(spec.embedding(size, dtype=dtype), dropout=self.bag_dropout, dtype=dtype)
        return SequenceAndBagEncoder(sequence, bag, dtype=dtype)

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        layer.bag.set_document_frequencies(corpus.document_frequencies, len(corpus.offsets) - 1)
        self.sequence.initialize(layer.sequence, corpus)
