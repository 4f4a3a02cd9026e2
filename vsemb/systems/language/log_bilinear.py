"""Log-bilinear neural language model (Kiros et al. 2014, equations 7 and 8), and the base of the other two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.encoders import WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Part, Positive, Share, Size, between
from vsemb.systems.captions.next_word import NextWordModel

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo

Tensor = Any


class ContextModel(NextWordModel):
    """Base class of models that predict the next word from the `context` previous words.

    A word has the same vector in the context and as prediction. START and END share the vector of id 0. The context
    before a sentence is filled with START.

    Args:
        vocabulary_size: number of ids, including START and END (0) and unknown (1).
        dim: size of the predicted representation, K.
        context: number of previous words, n - 1 of equation 7.
        width: size of a word vector.
        dropout: dropout rate before the softmax.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word vectors are initialized uniformly in [-init_scale, init_scale]; default 0.1.
        **kwargs: arguments of `NextWordModel`.

    Raises:
        InvalidArgumentError: for a number outside its range.
    """

    # Of the family: a model may get the batches of another.
    input_names = ("text", "content", "tags")

    def __init__(
        self,
        vocabulary_size: int,
        dim: Count,
        context: Count,
        width: int,
        *,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        init_scale: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, **kwargs)
        self.keep_arguments(locals())
        self.words = WordEmbedding(
            vocabulary_size,
            width,
            word_dropout=word_dropout,
            init_scale=init_scale,
            dtype=self.dtype_policy,
            name="words",
        )
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        # Any number of rows and steps.
        if not self.words.built:
            self.words.build((None, None))
        # The matrices act on rows: entry i is the transpose of C^(i), where i = 0 is the earliest word.
        self.context_kernels = self.add_weight(
            shape=(self.context, self.dim, self.dim), initializer="glorot_uniform", name="context_kernels"
        )
        self.output_bias = self.add_weight(
            shape=(self.vocabulary_size,), initializer="zeros", autocast=False, name="bias"
        )

    def _context_matrix(self) -> Tensor:
        """Return the matrix from concatenated context vectors to the predicted vector."""
        raise NotImplementedError

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """Return what `_conditioned` reads, (n, 1 or steps + 1, width); None for a model without a condition."""
        raise NotImplementedError

    def _conditioned(self, predicted: Tensor, gates: Tensor) -> Tensor:
        """Combine the predicted vector with the result of `_gates`."""
        return predicted * gates

    def _logits(self, vectors: Tensor, gates: Tensor | None, training: bool = False) -> Tensor:
        """Compute the logits of all words: context vectors (..., context * width) -> (..., V) float32."""
        predicted = ops.matmul(vectors, self._cast(self._context_matrix()))
        if gates is not None:
            predicted = self._conditioned(predicted, gates)
        predicted = self._dropout_layer(predicted, training=training)
        scores = ops.matmul(predicted, ops.transpose(self._cast(self.words.table)))
        return ops.cast(scores, "float32") + self.output_bias

    def _cast(self, weight: Tensor) -> Tensor:
        return ops.cast(weight, self.compute_dtype)

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        text = inputs["text"]
        before = self.words(ops.pad(text, [[0, 0], [self.context, 0]]), training=training)
        targets = ops.shape(text)[1] + 1
        windows = [before[:, place : place + targets] for place in range(self.context)]
        return self._logits(ops.concatenate(windows, axis=-1), self._gates(inputs), training)

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not inputs:
            raise invalid_argument("inputs", inputs, "at least one tensor, whose 0th dimension is the rows")
        rows = ops.shape(next(iter(inputs.values())))[0]
        return {"context": ops.zeros((rows, self.context), "int32")}

    def step(self, state: Mapping[str, Tensor], words: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        words = ops.expand_dims(ops.cast(words, "int32"), 1)
        context = ops.concatenate([state["context"][:, 1:], words], axis=1)
        vectors = ops.reshape(self.words(context), (-1, self.context * self.words.dim))
        logits = self._logits(vectors, self._gates_now(state))
        return ops.log_softmax(logits, axis=-1), self._next({**state, "context": context})

    def _gates_now(self, state: Mapping[str, Tensor]) -> Tensor | None:
        """Return the factors of `_gates` for the next word, (rows, width)."""
        return state.get("gates")

    def _next(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return state


@keras.saving.register_keras_serializable("vsemb")
class LogBilinear(ContextModel):
    """Log-bilinear model: linear prediction of the next word's vector.

    Kiros et al. 2014, equations 7 and 8: r = sum over i of C^(i) w_i, and P(word) is the softmax of
    r . r_word + b_word. It is the baseline without images and content vectors.

    Args:
        vocabulary_size: number of ids, including START and END (0) and unknown (1).
        dim: size of a word vector, K; default 300.
        context: number of previous words; default 5.
        dropout: dropout rate of the predicted vector.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word vectors are initialized uniformly in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32}, 0 = padding on the right; content and tags are not read. `start` reads only
            the number of rows, from the first tensor.
        training: whether to apply dropout.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END (0).

    Example:

    >>> model = LogBilinear(vocabulary_size=10, dim=4, context=2)
    >>> model({"text": ops.ones((3, 5), "int32")}).shape
    TensorShape([3, 6, 10])
    """

    def __init__(self, vocabulary_size: int, dim: int = 300, context: int = 5, **kwargs: Any) -> None:
        super().__init__(vocabulary_size, dim, context, dim, **kwargs)

    def _context_matrix(self) -> Tensor:
        return ops.reshape(self.context_kernels, (-1, self.dim))

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        return None


@dataclass(frozen=True)
class LanguageModel(Part, family="language model"):
    """Base class of the family `language model`: prediction of the next word from a few previous words.

    Attributes:
        dim: size of a word's representation.
        context: number of previous words.
        dropout: dropout rate before the softmax.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word vectors are initialized uniformly in +- this value.
        frequency_bias: whether to initialize the softmax bias with log word frequencies.

    Class attributes:
        model: class of the Keras model.
        reads_content: whether the model is conditioned on embeddings of an encoder, so that it can caption images.
        reads_tags: whether the model is conditioned on parts of speech.
    """

    model: ClassVar[type[keras.Model]]
    reads_content: ClassVar[bool] = False
    reads_tags: ClassVar[bool] = False

    dim: Size = 300
    # One matrix per word of the context.
    context: Annotated[int, between(1, 64)] = 5
    dropout: Share = 0.0
    word_dropout: Share = 0.0
    init_scale: Positive = 0.1
    frequency_bias: bool = True

    @property
    def how_written(self) -> str:
        """Method of caption generation as a phrase; "" for a model without it."""
        return ""

    def build(self, vocabulary_size: int, info: RunInfo, l2: float, dtype: str) -> ContextModel:
        """Build the Keras model.

        Args:
            vocabulary_size: number of word ids.
            info: content of `run.json`, including `content_dim` and `tag_names`.
            l2: see `NextWordModel`.
            dtype: dtype policy.
        """
        options = self.arguments("frequency_bias")
        return self.model(vocabulary_size, l2=l2, dtype=dtype, **options, **self.sizes(info))

    def sizes(self, info: RunInfo) -> dict[str, int]:
        """Return the arguments of the Keras model from `run.json`."""
        return {}


@dataclass(frozen=True)
class LogBilinearPart(LanguageModel, kind="log-bilinear"):
    """Log-bilinear model with words as only input (Kiros et al. 2014, equations 7 and 8)."""

    model: ClassVar[type[keras.Model]] = LogBilinear
