"""The language models of Kiros et al. 2014: log-bilinear, multiplicative and structure-content (SC-NLM)."""

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


@keras.saving.register_keras_serializable("vsemb")
class Multiplicative(ContextModel):
    """The multiplicative model: word vectors that depend on a content vector u, a tensor in three factors.

    Kiros et al. 2014, equations 9 and 10. With E = Wfk^T Wfv and r = sum over i of C^(i) E(:, w_i), the
    factor outputs are f = (Wfk r) * (Wfd u), and P(word) is the softmax of Wfv(:, word) . f + b_word. Here
    Wfv is the table of `words`, its columns as rows. Since Wfk r is the sum of (Wfk C^(i) Wfk^T) Wfv(:, w_i),
    neither E nor r is formed: contexts stay in the factors.

    Args:
        vocabulary_size: number of ids, START and END (0) and unknown (1) included.
        dim: size of a word's representation, K.
        context: words looked back at.
        content_dim: size of the content vector, G.
        factors: of the tensor, F.
        dropout: in training, the share of the factor outputs that are dropped.
        word_dropout: in training, the share of context words replaced by the unknown word.
        init_scale: the words' factors start uniform in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32, 0 = padding on the right; "content": (n, content_dim) float}.
        training: whether dropout acts.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END, which is 0.

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
        # A content vector has unit length: so its factors start with entries of the order of 1.
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
    """The structure-content model: what is said comes as a vector, how it is said as parts of speech.

    Kiros et al. 2014, equation 11: a multiplicative model in which u is replaced, for the n-th word, by
    ReLU(sum over i of T^(i) t_(n+i) + T^(u) u + b), where t_n, ..., t_(n+k) are the vectors of the word's own
    part of speech and of the k next ones. Behind the last word stands tag 0, as id 0 stands for END.

    Args:
        vocabulary_size: number of ids, START and END (0) and unknown (1) included.
        dim: size of a word's representation, of a tag's vector and of the attribute vector, K = G.
        context: words looked back at.
        content_dim: size of the content vector.
        tags: number of parts of speech; their ids are 1 to `tags`.
        structure: parts of speech looked ahead at beside the word's own, k.
        factors: of the tensor, F.
        dropout: in training, the share of the factor outputs that are dropped.
        word_dropout: in training, the share of context words replaced by the unknown word.
        init_scale: the words' factors and tag vectors start uniform in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32, 0 = padding on the right; "content": (n, content_dim) float;
            "tags": (n, steps) int32, that of each word, 0 = padding}. Of `start`, "tags" is (rows, length),
            the sequence that is wanted; what is written longer sees tag 0 from there on.
        training: whether dropout acts.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END, which is 0.

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
        # T^(i) t of each tag there is, as they are few: (structure + 1, tags + 1, dim).
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
    """How captions are written with a language model, see `vsemb.systems.language.candidates`.

    Attributes:
        beam: hypotheses kept while a candidate is searched for; 1 takes the likeliest word each time.
        candidates: captions written for an image before the best are chosen.
        neighbours: nearest words and sentences whose mean a caption may start from.
        stopwords: words that may be repeated without penalty: `nltk` for the list of NLTK's corpus, or the path of a
            file with one word a line.
    """

    # A candidate is the likeliest caption of its parts of speech, word by word; there are a thousand.
    beam: Annotated[int, between(1, 1024)] = 1
    candidates: Size = 1000
    neighbours: Count = 5
    stopwords: str = "nltk"


@dataclass(frozen=True)
class MultiplicativePart(LanguageModel, kind="multiplicative"):
    """The multiplicative model, conditioned on a vector of the sentence (Kiros et al. 2014, equations 9 and 10).

    Attributes:
        factors: of the tensor.
        writing: how captions are written.
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
    """The structure-content model, conditioned on parts of speech too (Kiros et al. 2014, equation 11).

    Attributes:
        structure: parts of speech looked ahead at beside the word's own.
    """

    model: ClassVar[type[keras.Model]] = StructureContent
    reads_tags: ClassVar[bool] = True

    structure: Annotated[int, between(0, 64)] = 3

    def sizes(self, info: Mapping[str, Any]) -> dict[str, int]:
        return {**super().sizes(info), "tags": len(info["tag_names"])}
