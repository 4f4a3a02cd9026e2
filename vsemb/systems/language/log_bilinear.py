"""The log-bilinear language model, and what the models derived from it share with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.encoders import WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Part, Positive, Share, Size, between
from vsemb.systems.captions.next_word import NextWordModel

Tensor = Any


class ContextModel(NextWordModel):
    """Base of the models whose next word depends on the `context` words before it and no others.

    A word has one vector, both as one of the context and as the one that is predicted; START and END share
    that of id 0. In front of a sentence stands START as often as the context wants it.

    Args:
        vocabulary_size: number of ids, START and END (0) and unknown (1) included.
        dim: size of the predicted representation, K.
        context: words looked back at, n - 1 of equation 7.
        width: entries of a word's vector.
        dropout: in training, the share of entries dropped in front of the softmax.
        word_dropout: in training, the share of context words replaced by the unknown word.
        init_scale: word vectors start uniform in [-init_scale, init_scale].
        **kwargs: arguments of `NextWordModel`.

    Raises:
        InvalidArgumentError: for a number outside its range.
    """

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
        # Rows and steps of any number.
        if not self.words.built:
            self.words.build((None, None))
        # Each maps rows: entry i is the transpose of C^(i), where i = 0 is the word farthest back.
        self.context_kernels = self.add_weight(
            shape=(self.context, self.dim, self.dim), initializer="glorot_uniform", name="context_kernels"
        )
        self.output_bias = self.add_weight(
            shape=(self.vocabulary_size,), initializer="zeros", autocast=False, name="bias"
        )

    def _context_matrix(self) -> Tensor:
        """Maps the vectors of a context, one behind the other, to what is compared with all words'."""
        raise NotImplementedError

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """What the prediction is multiplied by, (n, 1 or steps + 1, width); None for nothing."""
        raise NotImplementedError

    def _logits(self, vectors: Tensor, gates: Tensor | None, training: bool = False) -> Tensor:
        """Scores all words; (..., context * width) word vectors of contexts -> (..., V) float32."""
        predicted = ops.matmul(vectors, self._cast(self._context_matrix()))
        if gates is not None:
            predicted = predicted * gates
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
        """What `_gates` gives for the word that comes next, (rows, width)."""
        return state.get("gates")

    def _next(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return state


@keras.saving.register_keras_serializable("vsemb")
class LogBilinear(ContextModel):
    """The log-bilinear model: a linear prediction of the next word's vector, compared with all words'.

    Kiros et al. 2014, equations 7 and 8: r = sum over i of C^(i) w_i, and P(word) is the softmax of
    r . r_word + b_word. It sees no image and no content, and is the baseline of the models that do.

    Args:
        vocabulary_size: number of ids, START and END (0) and unknown (1) included.
        dim: size of a word vector, K.
        context: words looked back at.
        dropout: in training, the share of the prediction's entries that are dropped.
        word_dropout: in training, the share of context words replaced by the unknown word.
        init_scale: word vectors start uniform in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32}, 0 = padding on the right; what else is in it is not read. `start`
            takes the number of rows from whatever tensor is there.
        training: whether dropout acts.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END, which is 0.

    Example:

    >>> model = LogBilinear(vocabulary_size=10, dim=4, context=2)
    >>> model({"text": ops.ones((3, 5), "int32")}).shape
    TensorShape([3, 6, 10])
    """

    def __init__(self, vocabulary_size: int, dim: int = 300, context: int = 5, **kwargs: Any) -> None:
        super().__init__(vocabulary_size, dim, context, dim, **kwargs)

    def _context_matrix(self) -> Tensor:
        return ops.reshape(self.context_kernels, (-1, self.dim))

    def _gates(self, inputs: Mapping[str, Tensor]) -> None:
        return None


@dataclass(frozen=True)
class LanguageModel(Part, family="language model"):
    """A model whose next word depends on the few words before it; base of the family `language model`.

    Attributes:
        dim: size of a word's representation.
        context: words looked back at.
        dropout: share of the entries dropped in front of the softmax in training.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word vectors start uniform in +- this.
        frequency_bias: whether the softmax' bias starts at the logarithm of the words' frequencies.

    Class attributes:
        model: what it builds.
        reads_content: whether the model is conditioned on vectors of an encoder, so that it writes about images.
        reads_tags: whether it is conditioned on parts of speech.
    """

    model: ClassVar[type[keras.Model]]
    reads_content: ClassVar[bool] = False
    reads_tags: ClassVar[bool] = False

    dim: Size = 300
    # A matrix for each word of the context.
    context: Annotated[int, between(1, 64)] = 5
    dropout: Share = 0.0
    word_dropout: Share = 0.0
    init_scale: Positive = 0.1
    frequency_bias: bool = True

    @property
    def how_written(self) -> str:
        """How captions are looked for, as a phrase; "" for a model that writes none."""
        return ""

    def build(self, vocabulary_size: int, info: Mapping[str, Any], l2: float, dtype: str) -> ContextModel:
        """Builds the Keras model.

        Args:
            vocabulary_size: number of word ids.
            info: what `run.json` says, `content_dim` and `tag_names` among it.
            l2: see `NextWordModel`.
            dtype: dtype policy.
        """
        options = self.arguments("frequency_bias")
        return self.model(vocabulary_size, l2=l2, dtype=dtype, **options, **self.sizes(info))

    def sizes(self, info: Mapping[str, Any]) -> dict[str, int]:
        """Returns the arguments of the Keras model that `run.json` gives."""
        return {}


@dataclass(frozen=True)
class LogBilinearPart(LanguageModel, kind="log-bilinear"):
    """The log-bilinear model, which sees words alone (Kiros et al. 2014, equations 7 and 8)."""

    model: ClassVar[type[keras.Model]] = LogBilinear
