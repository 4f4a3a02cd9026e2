"""Text encoders of recipes: parts that build a layer from token ids to the embedding, and their word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.console import say
from vsemb.errors import invalid_argument
from vsemb.parts import Part, Positive, Share, Size, at_least

if TYPE_CHECKING:
    from vsemb.text.vocabulary import Vocabulary

Tensor = Any

PADDING_ID, UNKNOWN_ID = 0, 1
#: `WordVectors.vectors` for vectors learned from the captions, in place of a file.
FROM_CAPTIONS = "captions"


@dataclass(frozen=True)
class TextSpec:
    """Facts about the texts that an encoder reads.

    Attributes:
        vocabulary_size: number of token ids, padding and unknown included.
        length: the most tokens of a text.
        info: what `run.json` says, for sizes that systems add, such as `attribute_dim`.
    """

    vocabulary_size: int
    length: int
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TextCorpus:
    """The training texts, from which parts of an encoder are initialized.

    Attributes:
        vocabulary: of the tokens.
        ids: (tokens,) int32, all texts one behind the other; of trees the ids alone.
        offsets: (texts + 1,) int64, where each text begins.
        whole_words: whether a token is a word.
        seed: of random draws.
        dataset: the dataset of the texts; None for texts without one.
    """

    vocabulary: Vocabulary
    ids: np.ndarray
    offsets: np.ndarray
    whole_words: bool
    seed: int
    dataset: Any = None

    @cached_property
    def document_frequencies(self) -> np.ndarray:
        """In how many texts each id stands, int64 (len(vocabulary),)."""
        texts = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        distinct = np.unique(np.stack([texts, self.ids]), axis=1)[1]
        return np.bincount(distinct, minlength=len(self.vocabulary))


@dataclass(frozen=True)
class TextEncoderPart(Part, family="text encoder"):
    """How a recipe turns token ids into an embedding; base of the family `text encoder`.

    Class attributes:
        accepts: what tokens it reads, see `vsemb.text.tokenizers.TokenizerPart.produces`.
        produces: `vector`, or `multi_vector` for one vector per token.
    """

    accepts: ClassVar[str] = "ids"
    produces: ClassVar[str] = "vector"

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> keras.layers.Layer:
        """Builds the layer.

        Args:
            dim: size of the embedding; None for the encoder's own size, without a map behind it.
            spec: the texts.
            dtype: dtype policy of the layer.

        Raises:
            InvalidArgumentError: for a field that does not fit `dim` or the texts.
        """
        raise NotImplementedError

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        """Sets what the layer learns from the training texts before the first step.

        Args:
            layer: what `build` returned, built.
            corpus: the training texts.

        Raises:
            VsembError: if it cannot be learned from them.
        """

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Checks that the encoder reads what a tokenizer makes.

        Args:
            tokenizer: a `vsemb.text.tokenizers.TokenizerPart`.

        Raises:
            InvalidArgumentError: if it does not.
        """
        if tokenizer.produces != self.accepts:
            fix = f"Set text.tokenizer to one that makes {self.accepts}."
            raise invalid_argument("text.encoder", self.kind, f"an encoder of {tokenizer.produces}", fix)


@keras.saving.register_keras_serializable("vsemb")
class WordEmbedding(Configured, keras.layers.Layer):
    """Look up word vectors.

    Args:
        vocabulary_size: number of ids, `len(vocabulary)`: padding (0) and unknown (1) included.
        dim: size of a word vector.
        train_words: whether the vectors are trained; Kiros et al. 2014 keep them fixed.
        init_scale: vectors start uniform in [-init_scale, init_scale].
        word_dropout: share of words replaced by the unknown word in training.
        dropout: share of vector entries set to 0 in training.
        dense_gradient: whether the table's gradient has one row per word, the sum over the word's places.
            Otherwise it has one row per place. Optimizers that square gradients then add up the squares of a
            repeated word's rows instead of squaring their sum. With 70 characters, which all repeat, steps
            become many times too long.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding.
        training: whether the dropouts act.

    Returns:
        (batch, steps, dim).

    Example:

    >>> WordEmbedding(vocabulary_size=10, dim=4)(ops.ones((2, 3), "int32")).shape
    TensorShape([2, 3, 4])
    """

    def __init__(
        self,
        vocabulary_size: Annotated[int, at_least(2)],
        dim: int = 300,
        *,
        train_words: bool = True,
        init_scale: float = 0.1,
        word_dropout: Share = 0.0,
        dropout: float = 0.0,
        dense_gradient: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.seed_generator = keras.random.SeedGenerator()
        self._dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(
            shape=(self.vocabulary_size, self.dim),
            initializer=keras.initializers.RandomUniform(-self.init_scale, self.init_scale),
            trainable=self.train_words,
            name="table",
        )
        self._dropout_layer.build((*input_shape, self.dim))

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        if "int" not in keras.backend.standardize_dtype(token_ids.dtype):
            # Functional and sequential models of Keras turn ids into floats.
            token_ids = ops.cast(token_ids, "int32")
        if training and self.word_dropout:
            draw = keras.random.uniform(ops.shape(token_ids), dtype="float32", seed=self.seed_generator)
            drop = ops.logical_and(ops.less(draw, self.word_dropout), ops.not_equal(token_ids, PADDING_ID))
            token_ids = ops.where(drop, ops.cast(UNKNOWN_ID, token_ids.dtype), token_ids)
        # The gradient of a product has the table's shape, that of `take` a row for every token.
        table = ops.multiply(self.table, 1.0) if training and self.dense_gradient else self.table
        vectors = ops.cast(ops.take(table, token_ids, axis=0), self.compute_dtype)
        return self._dropout_layer(vectors, training=training)

    def set_vectors(self, vectors: np.ndarray) -> None:
        """Set the table, e.g. from `vsemb.text.word_vectors.read_word_vectors`.

        Args:
            vectors: (vocabulary_size, dim) float.

        Raises:
            InvalidArgumentError: for another shape or a value that is not finite.
        """
        expected = (self.vocabulary_size, self.dim)
        if tuple(vectors.shape) != expected:
            raise invalid_argument("vectors", tuple(vectors.shape), f"an array of shape {expected}")
        if not np.isfinite(vectors).all():
            raise invalid_argument("vectors", "NaN or infinity", "finite numbers")
        if not self.built:
            self.build((None, None))
        self.table.assign(vectors)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape, self.dim)


def word_ids(token_ids: Tensor) -> Tensor:
    """Returns the ids of tokens that are words, (batch, steps), or words of trees, (batch, steps, 2).

    Example:

    >>> word_ids(ops.convert_to_tensor([[[7, 0], [9, 1]]])).numpy().tolist()
    [[7, 9]]
    """
    return token_ids[..., 0] if len(token_ids.shape) == 3 else token_ids


def padding_mask(token_ids: Tensor) -> Tensor:
    """Returns (batch, steps) bool, true where a token stands."""
    return ops.not_equal(token_ids, PADDING_ID)


@dataclass(frozen=True)
class WordVectors(Part):
    """The word vectors of a text encoder.

    Attributes:
        dim: size of a word vector.
        vectors: path of pretrained vectors (GloVe or word2vec text format), or `captions` for vectors learned from
            which words stand together in the training captions; null for random ones.
        trainable: whether word vectors are trained.
        init_scale: random word vectors are uniform in +- this.
        dense_gradient: whether a word's gradients are added up before the optimizer squares them.
        word_dropout: share of words replaced by the unknown word in training.
        dropout: share of word-vector entries dropped in training.
    """

    dim: Size = 300
    vectors: str | None = None
    trainable: bool = True
    init_scale: Positive = 0.1
    dense_gradient: bool = False
    word_dropout: Share = 0.0
    dropout: Share = 0.0

    def build(self, vocabulary_size: int, dtype: str) -> WordEmbedding:
        """Builds the table of vectors."""
        options = self.arguments("vectors", "trainable")
        return WordEmbedding(vocabulary_size, train_words=self.trainable, dtype=dtype, **options)

    def initialize(self, layer: WordEmbedding, corpus: TextCorpus) -> None:
        """Sets the vectors that `vectors` names.

        Raises:
            VsembError: if they cannot be read or do not fit.
        """
        # The room of texts imports TensorFlow, which encoders do without.
        from vsemb.text.word_vectors import cooccurrence_vectors, read_word_vectors

        if self.vectors == FROM_CAPTIONS:
            layer.set_vectors(cooccurrence_vectors(corpus.ids, corpus.offsets, len(corpus.vocabulary), layer.dim))
        elif self.vectors is not None:
            if not corpus.whole_words:
                allowed = f"null or {FROM_CAPTIONS!r} with a tokenizer of subwords or characters"
                fix = "A file has vectors of whole words."
                raise invalid_argument("words.vectors", self.vectors, allowed, fix)
            vectors, found = read_word_vectors(self.vectors, corpus.vocabulary, corpus.seed)
            layer.set_vectors(vectors)
            say(f"word vectors for {found} of {len(corpus.vocabulary.words)} words")


@dataclass(frozen=True)
class WordEncoderPart(TextEncoderPart):
    """A text encoder over word vectors; base of those whose layer is made of the vectors, a size and their own fields.

    Attributes:
        words: the word vectors.

    Class attributes:
        layer: what it builds; without a size, of None, it has its own.
    """

    layer: ClassVar[type[keras.layers.Layer]]

    words: WordVectors = field(default_factory=WordVectors)

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> keras.layers.Layer:
        words = self.words.build(spec.vocabulary_size, dtype)
        return self.layer(words, dim, dtype=dtype, **self.layer_arguments(spec))

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        """Returns what the layer takes beside the word vectors and its size."""
        return self.arguments()

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        self.words.initialize(layer.words, corpus)
