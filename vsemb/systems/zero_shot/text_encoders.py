"""The text encoders of Reed et al. 2016: convolutional (4.1, 4.2), bag of words and attributes (4.4).

The other encoders of table 1 are in the base, see `vsemb.systems.zero_shot.sje`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured, build_layers
from vsemb.encoders.pooling import masked_sum, step_terms
from vsemb.encoders.recurrent import GRU, LSTM
from vsemb.encoders.text_encoder import (
    UNKNOWN_ID,
    TextCorpus,
    TextEncoderPart,
    TextSpec,
    WordEmbedding,
    WordEncoderPart,
    padding_mask,
)
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Share, Size
from vsemb.recipes.info import untyped

Tensor = Any
#: Filters and width of a convolution, size and stride of its pooling (size 1: no pooling).
Stage = Sequence[int]

# Both end in eight steps, as in the paper (section 4.2).
#: 201 characters -> 198 -> 66 -> 63 -> 21 -> 18 -> 8 steps.
CHARACTER_STAGES = ((384, 4, 3, 3), (512, 4, 3, 3), (256, 4, 3, 2))
#: 30 words -> 28 -> 27 -> 9 -> 8 steps.
WORD_STAGES = ((384, 3, 1, 1), (512, 2, 3, 3), (256, 2, 1, 1))

_RECURRENT = {
    "rnn": keras.layers.SimpleRNN,
    "gru": GRU,
    "lstm": LSTM,
}


def stage_lengths(length: int, stages: Sequence[Stage]) -> list[int]:
    """Return the number of steps of the input and after each convolution and pooling.

    Args:
        length: steps of the input.
        stages: as in `ConvolutionalSentenceEncoder`.

    Raises:
        InvalidArgumentError: for a malformed stage, or a length too short for the stages.

    Example:

    >>> stage_lengths(201, CHARACTER_STAGES)
    [201, 198, 66, 63, 21, 18, 8]
    """
    lengths = [length]
    for stage in stages:
        if len(stage) != 4 or min(stage) < 1:
            allowed = "four integers >= 1: filters, width, pool size, pool stride"
            raise invalid_argument("stages", stage, allowed)
        _, width, size, stride = stage
        lengths.append(lengths[-1] - width + 1)
        if size > 1:
            lengths.append((lengths[-1] - size) // stride + 1)
    if min(lengths) < 1:
        raise invalid_argument("length", length, f"enough steps for the stages (they leave {lengths})")
    return lengths


@keras.saving.register_keras_serializable("vsemb")
class ConvolutionalSentenceEncoder(Configured, keras.layers.Layer):
    """CNN and CNN-RNN over words or characters (Reed et al. 2016, sections 4.1 and 4.2).

    Temporal convolutions without padding, each followed by a ReLU and max-pooling. Then either fully-connected layers,
    phi(t) = CNN(t), or a recurrent layer over the remaining steps, phi(t) = the average of its hidden states, and a
    linear map to `dim`. The paper omits filter sizes: `CHARACTER_STAGES`, `"rnn"` with ReLU and the linear map follow
    the authors' released code; `WORD_STAGES` reduce 30 words to the same eight steps. The paper's input is one-hot
    characters; a trained vector per character before the first convolution computes the same functions.

    Every text has exactly `length` steps: longer ones are truncated, shorter ones padded with zero vectors.

    Args:
        words: vectors of the words or characters.
        dim: size of the sentence embedding; None for `units`; default 1024.
        length: steps of the input (201 characters or 30 words in the paper).
        stages: filters, width, pool size and pool stride of each convolution; pool size 1 disables pooling.
        recurrent: None for the CNN; `"rnn"` (with ReLU), `"gru"` or `"lstm"` for the CNN-RNN.
        units: size of the recurrent state; default 256.
        hidden: size of the CNN's hidden layer, with ReLU; default 1024.
        dropout: share of entries set to 0 before the last layer in training.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding, on the right.
        training: whether to apply dropout.

    Returns:
        (batch, dim).

    Raises:
        InvalidArgumentError: for an unknown recurrent layer, or a length too short for the stages.

    Example:

    >>> import numpy as np
    >>> words = WordEmbedding(vocabulary_size=10, dim=4)
    >>> stages = ((8, 3, 2, 2), (8, 2, 1, 1))
    >>> encoder = ConvolutionalSentenceEncoder(words, dim=6, length=8, stages=stages, recurrent="rnn")
    >>> encoder(np.array([[2, 3, 4, 0]])).shape, encoder.lengths
    (TensorShape([1, 6]), [8, 6, 3, 2])
    """

    def __init__(
        self,
        words: WordEmbedding,
        dim: int | None = 1024,
        *,
        length: int,
        stages: Sequence[Stage],
        recurrent: Literal["rnn", "gru", "lstm"] | None = None,
        units: int = 256,
        hidden: int = 1024,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.dim = dim or units
        self.lengths = stage_lengths(length, stages)
        self.stages = [[int(number) for number in stage] for stage in stages]
        dtype = self.dtype_policy
        self.convolutions = [
            keras.layers.Conv1D(
                filters, width, activation="relu", data_format="channels_last", dtype=dtype, name=f"stage_{i}"
            )
            for i, (filters, width, *_) in enumerate(self.stages)
        ]
        # The CNN's hidden layer, or the recurrent one.
        self.summary = (
            keras.layers.Dense(hidden, activation="relu", dtype=dtype, name="hidden")
            if recurrent is None
            else self._recurrent_layer(recurrent)
        )
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=dtype)
        self.projection = keras.layers.Dense(self.dim, dtype=dtype, name="projection")

    def _recurrent_layer(self, name: str) -> keras.layers.Layer:
        options: dict[str, Any] = {}
        if name == "rnn":
            # With ReLU, states grow with the powers of the recurrent matrix. Starting from the identity, the state is
            # a sum over the steps, and gradients neither vanish nor explode (Le, Jaitly, Hinton 2015,
            # arXiv:1504.00941). The bias is the weight of a constant input, since TensorFlow 2.20's graph optimizer
            # logs an error for a ReLU after a product, a bias and a sum.
            options = {"activation": "relu", "recurrent_initializer": "identity", "use_bias": False}
        return _RECURRENT[name](self.units, return_sequences=True, dtype=self.dtype_policy, name="recurrent", **options)

    def build(self, input_shape: Any) -> None:
        batch, channels = input_shape[0], self.words.dim
        build_layers((self.words, (batch, self.length)))
        for convolution in self.convolutions:
            # A convolution's weights do not depend on the number of steps.
            convolution.build((batch, None, channels))
            channels = convolution.filters
        steps = self.lengths[-1]
        if self.recurrent is None:
            self.summary.build((batch, steps * channels))
            self.projection.build((batch, self.hidden))
        else:
            self.summary.build((batch, steps, channels + (self.recurrent == "rnn")))
            self.projection.build((batch, self.units))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        states = self._states(token_ids, training)
        states = states if self.recurrent is None else ops.mean(states, axis=1)
        return self.projection(self._dropout_layer(states, training=training))

    def step_terms(self, token_ids: Tensor) -> Tensor:
        """Split the embeddings into terms of the recurrent layer's steps, see `vsemb.encoders.pooling.step_terms`.

        Raises:
            InvalidArgumentError: for an encoder without a recurrent layer.
        """
        if self.recurrent is None:
            raise invalid_argument(
                "recurrent", None, "rnn, gru or lstm", "A CNN's hidden layer reads all steps at once."
            )
        states = self._states(token_ids, training=False)
        return step_terms(states, ops.ones_like(states[..., 0], "bool"), "mean", self.projection)

    @property
    def step_spans(self) -> list[tuple[int, int]]:
        """First token that each of the last steps reads, and the one after its last.

        Example:

        >>> words = WordEmbedding(vocabulary_size=10, dim=4)
        >>> ConvolutionalSentenceEncoder(words, dim=6, length=8, stages=((8, 3, 2, 2), (8, 2, 1, 1))).step_spans
        [(0, 6), (2, 8)]
        """
        width = apart = 1
        for _, filter_width, size, stride in self.stages:
            width += (filter_width - 1) * apart
            if size > 1:
                width, apart = width + (size - 1) * apart, apart * stride
        return [(apart * step, apart * step + width) for step in range(self.lengths[-1])]

    def _states(self, token_ids: Tensor, training: bool) -> Tensor:
        """Return the hidden layer, (batch, hidden), or the states of the recurrent layer, (batch, steps, units)."""
        token_ids = ops.pad(token_ids, [[0, 0], [0, self.length]])[:, : self.length]
        token_ids = ops.reshape(token_ids, (-1, self.length))
        states = self.words(token_ids, training=training)  # (batch, length, words.dim)
        states = states * ops.expand_dims(ops.cast(padding_mask(token_ids), states.dtype), -1)
        for convolution, (_, _, size, stride) in zip(self.convolutions, self.stages, strict=True):
            states = convolution(states)
            if size > 1:
                states = ops.max_pool(states, size, stride, padding="valid", data_format="channels_last")
        if self.recurrent is None:
            return self.summary(ops.reshape(states, (-1, self.lengths[-1] * states.shape[-1])))
        if self.recurrent == "rnn":
            states = ops.pad(states, [[0, 0], [0, 0], [0, 1]], constant_values=1)
        return self.summary(states, training=training)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class Convolutional(WordEncoderPart, kind="convolutional"):
    """Convolutions over characters or words, followed by a hidden or recurrent layer.

    Attributes:
        words: vectors of the words or characters.
        stages: convolutions for 201 `characters` or 30 `words`; the tokenizer's `max_length` sets the input length.
        recurrent: `rnn`, `gru` or `lstm` over the last feature map; null for a hidden layer.
        units: size of the recurrent state, or of the hidden layer.
        dropout: share of entries dropped before the last layer in training.
    """

    accepts: ClassVar[tuple[str, ...]] = ("ids",)
    layer: ClassVar[type[keras.layers.Layer]] = ConvolutionalSentenceEncoder

    stages: Literal["words", "characters"] = "words"
    recurrent: Literal["rnn", "gru", "lstm"] | None = None
    units: Size = 1024
    dropout: Share = 0.0

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        stages = CHARACTER_STAGES if self.stages == "characters" else WORD_STAGES
        return {**self.arguments(), "length": spec.length, "stages": stages, "hidden": self.units}


@keras.saving.register_keras_serializable("vsemb")
class BinaryBagOfWords(Configured, keras.layers.Layer):
    """phi(t) = W I(t) + b, I(t) in {0, 1}^|V| the words of t (Reed et al. 2016, section 4.4).

    Computed as b plus the rows of W of the distinct words, without the indicator vector. The paper's vocabulary has
    every word. Here I(t) omits unknown words, because training may contain none and leave their row untrained.

    Args:
        vocabulary_size: number of ids, including padding (0) and unknown (1).
        dim: size of the embedding; default 1024.
        **kwargs: arguments of `keras.layers.Layer`.

    Attributes:
        words: W, a `WordEmbedding` of size `dim`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether gradients are computed.

    Returns:
        (batch, dim).

    Example:

    >>> import numpy as np
    >>> encoder = BinaryBagOfWords(vocabulary_size=10, dim=4)
    >>> once, twice = encoder(np.array([[2, 3, 0], [3, 2, 3]]))
    >>> bool(ops.all(once == twice))
    True
    """

    def __init__(self, vocabulary_size: int, dim: int = 1024, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        # Like the kernel of a dense layer: Glorot's range and a dense gradient.
        limit = math.sqrt(6 / (vocabulary_size + dim))
        self.words = WordEmbedding(vocabulary_size, dim, init_scale=limit, dense_gradient=True, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        build_layers((self.words, input_shape))
        self.bias = self.add_weight(shape=(self.dim,), initializer="zeros", name="bias")

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        ids = ops.sort(token_ids, axis=1)  # Equal words become neighbours.
        previous = ops.pad(ids[:, :-1], [[0, 0], [1, 0]])
        counted = ops.logical_and(ops.greater(ids, UNKNOWN_ID), ops.not_equal(ids, previous))
        return masked_sum(self.words(ids, training=training), counted) + ops.cast(self.bias, self.compute_dtype)

    def step_terms(self, token_ids: Tensor) -> Tensor:
        """Split the embeddings into terms of the words; a word that is counted has an equal part of the bias."""
        steps = ops.shape(token_ids)[1]
        earlier = ops.tril(ops.ones((steps, steps), "bool"), -1)
        equal = ops.equal(ops.expand_dims(token_ids, 2), ops.expand_dims(token_ids, 1))
        repeated = ops.any(ops.logical_and(equal, earlier), axis=2)
        counted = ops.logical_and(ops.greater(token_ids, UNKNOWN_ID), ops.logical_not(repeated))
        weights = ops.expand_dims(ops.cast(counted, self.compute_dtype), -1)
        shares = ops.cast(self.bias, self.compute_dtype) / ops.maximum(ops.sum(weights, axis=1, keepdims=True), 1)
        return weights * (self.words(token_ids) + shares)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class BinaryBagOfWordsPart(TextEncoderPart, kind="binary-bag-of-words"):
    """Binary bag of words with a linear map."""

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> BinaryBagOfWords:
        # None is the size of the features, here one entry per word; too large for an embedding.
        return BinaryBagOfWords(spec.vocabulary_size, 1024 if dim is None else dim, dtype=dtype)


@keras.saving.register_keras_serializable("vsemb")
class AttributeEncoder(Configured, keras.layers.Layer):
    """Linear map of the attributes of a class (Reed et al. 2016, section 4.4).

    This is the paper's baseline: an expert-written vector per class instead of sentences. It reads class names as ids
    of a `ClassTokenizer` and can replace a sentence encoder.

    Args:
        classes: number of classes, including classes without training images.
        attributes: number of attributes.
        dim: size of the embedding; default 1024.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, the class of each row first: 0 = padding, 1 = unknown class with zero
            attributes.

    Returns:
        (batch, dim).

    Example: two classes, "striped" and "striped and red".

    >>> encoder = AttributeEncoder(classes=2, attributes=2, dim=4)
    >>> encoder.set_attributes(np.array([[0, 0], [0, 0], [1, 0], [1, 1]]))
    >>> encoder(np.array([[2], [3]])).shape
    TensorShape([2, 4])
    """

    def __init__(self, classes: Count, attributes: Count, dim: int = 1024, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.affine = keras.layers.Dense(dim, dtype=self.dtype_policy, name="affine")

    def build(self, input_shape: Any) -> None:
        # A weight, so that it is saved with the model.
        self.table = self.add_weight(
            shape=(self.classes + 2, self.attributes), initializer="zeros", trainable=False, name="table"
        )
        self.affine.build((input_shape[0], self.attributes))

    def set_attributes(self, values: np.ndarray) -> None:
        """Set the attributes of every class.

        Args:
            values: (classes + 2, attributes) float, rows by id: 0 (padding) and 1 (unknown) are zeros.

        Raises:
            InvalidArgumentError: for another shape, a non-finite value, or nonzero rows 0 and 1.
        """
        expected = (self.classes + 2, self.attributes)
        if tuple(values.shape) != expected:
            raise invalid_argument("values", tuple(values.shape), f"an array of shape {expected}")
        if not np.isfinite(values).all():
            raise invalid_argument("values", "NaN or infinity", "finite numbers")
        if values[:2].any():
            raise invalid_argument("values", values[:2].tolist(), "zeros in rows 0 (padding) and 1 (unknown)")
        if not self.built:
            self.build((None, 1))
        self.table.assign(values)

    def call(self, token_ids: Tensor) -> Tensor:
        return self.affine(ops.take(self.table, token_ids[:, 0], axis=0))

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, Any]:
        return input_shape[0], self.dim


@dataclass(frozen=True)
class Attributes(TextEncoderPart, kind="attributes"):
    """Class attributes with a linear map."""

    accepts: ClassVar[tuple[str, ...]] = ("classes",)

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> AttributeEncoder:
        # Ids 0 (padding) and 1 (unknown) are not classes.
        classes, attributes = spec.vocabulary_size - 2, untyped(spec.info)["attribute_dim"]
        return AttributeEncoder(classes, attributes, attributes if dim is None else dim, dtype=dtype)

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        assert corpus.dataset is not None
        values = corpus.dataset.annotation("attributes").matrix(corpus.vocabulary.words)
        layer.set_attributes(np.concatenate([np.zeros((2, values.shape[1]), np.float32), values]))
