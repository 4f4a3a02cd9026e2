"""Language models of Kiros et al. 2014: log-bilinear, multiplicative and structure-content (SC-NLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.encoders import WordEmbedding
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Part, Positive, Share, Size, at_least, between
from vsemb.systems.captions.next_word import NextWordModel

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
        """Return the factors of the predicted vector, (n, 1 or steps + 1, width); None for a model without them."""
        raise NotImplementedError

    def _logits(self, vectors: Tensor, gates: Tensor | None, training: bool = False) -> Tensor:
        """Compute the logits of all words: context vectors (..., context * width) -> (..., V) float32."""
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
        inputs: {"text": (n, steps) int32}, 0 = padding on the right; other entries are not read. `start` reads only
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

    def _gates(self, inputs: Mapping[str, Tensor]) -> None:
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

    def build(self, vocabulary_size: int, info: Mapping[str, Any], l2: float, dtype: str) -> ContextModel:
        """Build the Keras model.

        Args:
            vocabulary_size: number of word ids.
            info: content of `run.json`, including `content_dim` and `tag_names`.
            l2: see `NextWordModel`.
            dtype: dtype policy.
        """
        options = self.arguments("frequency_bias")
        return self.model(vocabulary_size, l2=l2, dtype=dtype, **options, **self.sizes(info))

    def sizes(self, info: Mapping[str, Any]) -> dict[str, int]:
        """Return the arguments of the Keras model from `run.json`."""
        return {}


@dataclass(frozen=True)
class LogBilinearPart(LanguageModel, kind="log-bilinear"):
    """Log-bilinear model with words as only input (Kiros et al. 2014, equations 7 and 8)."""

    model: ClassVar[type[keras.Model]] = LogBilinear


@keras.saving.register_keras_serializable("vsemb")
class Multiplicative(ContextModel):
    """Multiplicative model: word vectors that depend on a content vector u, by a tensor in three factors.

    Kiros et al. 2014, equations 9 and 10: with E = Wfk^T Wfv and r = sum over i of C^(i) E(:, w_i), the factor
    outputs are f = (Wfk r) * (Wfd u). P(word) is the softmax of Wfv(:, word) . f + b_word. The rows of the table of
    `words` are the columns of Wfv. E and r are not computed, because Wfk r is the sum of
    (Wfk C^(i) Wfk^T) Wfv(:, w_i).

    Args:
        vocabulary_size: number of ids, including START and END (0) and unknown (1).
        dim: size of a word's representation, K; default 300.
        context: number of previous words; default 5.
        content_dim: size of the content vector, G.
        factors: number of factors of the tensor, F; default 100.
        dropout: dropout rate of the factor outputs.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word factors are initialized uniformly in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32, 0 = padding on the right; "content": (n, content_dim) float}.
        training: whether to apply dropout.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END (0).

    Example:

    >>> model = Multiplicative(vocabulary_size=10, dim=4, context=2, content_dim=6, factors=3)
    >>> model({"text": ops.ones((3, 5), "int32"), "content": ops.ones((3, 6))}).shape
    TensorShape([3, 6, 10])
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int = 300,
        context: int = 5,
        *,
        content_dim: Count,
        factors: Count = 100,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, dim, context, factors, **kwargs)
        self.keep_arguments(locals())

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.dim_factors = self.add_weight(
            shape=(self.factors, self.dim), initializer="glorot_uniform", name="dim_factors"
        )
        self._build_attributes()

    def _build_attributes(self) -> None:
        # A content vector has unit length, so its factors are initialized with entries of the order of 1.
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.attribute_factors = self.add_weight(
            shape=(self.content_dim, self.factors), initializer=normal, name="attribute_factors"
        )

    def _context_matrix(self) -> Tensor:
        folded = ops.matmul(self.dim_factors, self.context_kernels)  # (context, factors, dim)
        return ops.reshape(ops.matmul(folded, ops.transpose(self.dim_factors)), (-1, self.factors))

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor:
        content = self._cast(inputs["content"])
        return ops.expand_dims(ops.matmul(content, self._cast(self.attribute_factors)), 1)

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**super().start(inputs), "gates": ops.squeeze(self._gates(inputs), 1)}


@keras.saving.register_keras_serializable("vsemb")
class StructureContent(Multiplicative):
    """Structure-content model (SC-NLM), conditioned on a content vector and on parts of speech.

    Kiros et al. 2014, equation 11: a multiplicative model with an attribute vector per word instead of u. For word n it
    is ReLU(sum over i of T^(i) t_(n+i) + T^(u) u + b). The vectors t_n, ..., t_(n+k) are of the parts of speech of word
    n and the next k words. After the last word the tag is 0, like the id of END.

    Args:
        vocabulary_size: number of ids, including START and END (0) and unknown (1).
        dim: size of a word's representation, of a tag vector and of the attribute vector, K = G; default 300.
        context: number of previous words; default 5.
        content_dim: size of the content vector.
        tags: number of parts of speech; their ids are 1 to `tags`.
        structure: number of following parts of speech in addition to the word's own, k; default 3.
        factors: number of factors of the tensor, F.
        dropout: dropout rate of the factor outputs.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word factors and tag vectors are initialized uniformly in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32, 0 = padding on the right; "content": (n, content_dim) float;
            "tags": (n, steps) int32, tag of each word, 0 = padding}. For `start`, "tags" is (rows, length), the
            sequence to write; after its end the tag is 0.
        training: whether to apply dropout.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END (0).

    Example:

    >>> model = StructureContent(10, dim=4, context=2, content_dim=6, tags=3, structure=1, factors=3)
    >>> text = ops.ones((3, 5), "int32")
    >>> model({"text": text, "content": ops.ones((3, 6)), "tags": text}).shape
    TensorShape([3, 6, 10])
    """

    def __init__(
        self,
        vocabulary_size: int,
        dim: int = 300,
        context: int = 5,
        *,
        content_dim: int,
        tags: Count,
        structure: Annotated[int, at_least(0)] = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, dim, context, content_dim=content_dim, **kwargs)
        self.keep_arguments(locals())
        self.tag_vectors = WordEmbedding(
            tags + 1, dim, init_scale=self.init_scale, dtype=self.dtype_policy, name="tag_vectors"
        )

    def _build_attributes(self) -> None:
        if not self.tag_vectors.built:
            self.tag_vectors.build((None, None))
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.content_kernel = self.add_weight(
            shape=(self.content_dim, self.dim), initializer=normal, name="content_kernel"
        )
        # Entry i is the transpose of T^(n + i).
        self.structure_kernels = self.add_weight(
            shape=(self.structure + 1, self.dim, self.dim),
            initializer="glorot_uniform",
            name="structure_kernels",
        )
        self.attribute_bias = self.add_weight(shape=(self.dim,), initializer="zeros", name="attribute_bias")
        self.attribute_factors = self.add_weight(
            shape=(self.dim, self.factors), initializer="he_normal", name="attribute_factors"
        )

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor:
        tags = inputs["tags"]
        targets = ops.shape(tags)[1] + 1
        ahead = ops.pad(tags, [[0, 0], [0, self.structure + 1]])
        # T^(i) t of every tag, because tags are few: (structure + 1, tags + 1, dim).
        mapped = ops.matmul(self._cast(self.tag_vectors.table), self._cast(self.structure_kernels))
        content = ops.matmul(self._cast(inputs["content"]), self._cast(self.content_kernel))
        total = ops.expand_dims(content + self._cast(self.attribute_bias), 1)
        for place in range(self.structure + 1):
            total = total + ops.take(mapped[place], ahead[:, place : place + targets], axis=0)
        return ops.matmul(ops.relu(total), self._cast(self.attribute_factors))

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        state = ContextModel.start(self, inputs)
        position = ops.zeros_like(state["context"][:, 0])
        return {**state, "gates": self._gates(inputs), "position": position}

    def _gates_now(self, state: Mapping[str, Tensor]) -> Tensor:
        last = ops.shape(state["gates"])[1] - 1
        position = ops.minimum(state["position"], ops.cast(last, "int32"))
        return ops.squeeze(ops.take_along_axis(state["gates"], position[:, None, None], axis=1), 1)

    def _next(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**state, "position": state["position"] + 1}


@dataclass(frozen=True)
class Writing(Part):
    """Settings of caption generation with a language model, see `vsemb.systems.language.candidates`.

    Attributes:
        beam: beam width of the search for a candidate; 1 for greedy search.
        candidates: number of candidates per image.
        sampled: whether the content vector and the parts of speech of each candidate are sampled, as in the paper; else
            each sequence of parts of speech is used with every content vector.
        neighbours: number of nearest words, and of nearest sentences, in a mean content vector.
        stopwords: words that may be repeated without penalty: `nltk` for the list of NLTK's corpus, or the path of a
            file with one word per line.
    """

    # Greedy search by default, because there are a thousand candidates.
    beam: Annotated[int, between(1, 1024)] = 1
    candidates: Size = 1000
    sampled: bool = False
    neighbours: Count = 5
    stopwords: str = "nltk"


@dataclass(frozen=True)
class MultiplicativePart(LanguageModel, kind="multiplicative"):
    """Multiplicative model, conditioned on an embedding of the sentence (Kiros et al. 2014, equations 9 and 10).

    Attributes:
        factors: number of factors of the tensor.
        writing: settings of caption generation.
    """

    model: ClassVar[type[keras.Model]] = Multiplicative
    reads_content: ClassVar[bool] = True

    factors: Size = 100
    writing: Writing = field(default_factory=Writing)

    @property
    def how_written(self) -> str:
        return f"the best of {self.writing.candidates:,} candidates"

    def sizes(self, info: Mapping[str, Any]) -> dict[str, int]:
        return {"content_dim": info["content_dim"]}


@dataclass(frozen=True)
class StructureContentPart(MultiplicativePart, kind="sc-nlm"):
    """Structure-content model, also conditioned on parts of speech (Kiros et al. 2014, equation 11).

    Attributes:
        structure: number of following parts of speech in addition to the word's own.
    """

    model: ClassVar[type[keras.Model]] = StructureContent
    reads_tags: ClassVar[bool] = True

    structure: Annotated[int, between(0, 64)] = 3

    def sizes(self, info: Mapping[str, Any]) -> dict[str, int]:
        return {**super().sizes(info), "tags": len(info["tag_names"])}
