"""Text encoders of recipes: parts that build a layer from token ids to the embedding, and their word vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import keras
import numpy as np
from keras import ops

from vsemb.configured import Configured
from vsemb.console import say
from vsemb.errors import invalid_argument
from vsemb.ops.backend import is_portable
from vsemb.ops.row_means import mean_rows
from vsemb.parts import Count, Part, Positive, Share, Size, at_least

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.recipes.info import RunInfo
    from vsemb.text.tokenizers import TokenizerPart
    from vsemb.text.vocabulary import Vocabulary

Tensor = Any

PADDING_ID, UNKNOWN_ID = 0, 1
#: Kind of tokens that are a word's id and its n-grams, see `TextEncoderPart.accepts`.
N_GRAMS = "n-grams"
# Rows that are added up at a time, which bounds memory.
_BLOCK = 1 << 16
#: `WordVectors.vectors` for vectors learned from the captions, in place of a file.
FROM_CAPTIONS = "captions"


def _no_info() -> RunInfo:
    return {}


@dataclass(frozen=True)
class TextSpec:
    """Facts about the texts that an encoder reads.

    Attributes:
        vocabulary_size: number of token ids, padding and unknown included.
        length: maximum number of tokens per text.
        info: contents of `run.json`, with sizes that systems add, such as `attribute_dim`.
        buckets: number of vectors for n-grams of words; 0 for tokens that are single ids.
    """

    vocabulary_size: int
    length: int
    info: RunInfo = field(default_factory=_no_info)
    buckets: int = 0

    def embedding(self, dim: int, **options: Any) -> WordEmbedding:
        """Build the layer from tokens to word vectors.

        Args:
            dim: size of a word vector.
            **options: further arguments of `WordEmbedding`.
        """
        if self.buckets:
            return NGramEmbedding(self.vocabulary_size, dim, buckets=self.buckets, **options)
        return WordEmbedding(self.vocabulary_size, dim, **options)


@dataclass(frozen=True)
class TextCorpus:
    """The training texts, from which parts of an encoder are initialized.

    Attributes:
        vocabulary: the vocabulary of the tokens.
        ids: (tokens,) int32, the concatenated texts; for trees, only the ids.
        offsets: (texts + 1,) int64, the start of each text in `ids`.
        whole_words: whether a token is a word.
        seed: seed of random draws.
        dataset: the dataset of the texts; None for texts without one.
        grams: (len(vocabulary), n) int32, the n-grams of each word, padded with 0; None for tokens that are single ids.
    """

    vocabulary: Vocabulary
    ids: np.ndarray
    offsets: np.ndarray
    whole_words: bool
    seed: int
    dataset: StoredDataset | None = None
    grams: np.ndarray | None = None

    @cached_property
    def document_frequencies(self) -> np.ndarray:
        """Number of texts that contain each id, (len(vocabulary),) int64."""
        texts = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        distinct = np.unique(np.stack([texts, self.ids]), axis=1)[1]
        return np.bincount(distinct, minlength=len(self.vocabulary))


@dataclass(frozen=True)
class TextEncoderPart(Part, family="text encoder"):
    """Text encoder of a recipe: token ids to embedding; base of the family `text encoder`.

    Class attributes:
        accepts: kinds of tokens that it reads, see `vsemb.text.tokenizers.TokenizerPart.produces`.
        produces: `vector`, or `multi_vector` for one vector per token.
    """

    accepts: ClassVar[tuple[str, ...]] = ("ids",)
    produces: ClassVar[str] = "vector"

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> keras.layers.Layer:
        """Build the layer.

        Args:
            dim: size of the embedding; None for the encoder's own size, without a map after it.
            spec: the texts.
            dtype: dtype policy of the layer.

        Raises:
            InvalidArgumentError: for a field that does not match `dim` or the texts.
        """
        raise NotImplementedError

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        """Set the parameters of the layer that are computed from the training texts before the first step.

        Args:
            layer: the built layer from `build`.
            corpus: the training texts.

        Raises:
            VsembError: if they cannot be computed.
        """

    def check_tokenizer(self, tokenizer: TokenizerPart) -> None:
        """Check that the encoder can read the tokens of a tokenizer.

        Args:
            tokenizer: the tokenizer of the recipe.

        Raises:
            InvalidArgumentError: if it does not.
        """
        if tokenizer.produces not in self.accepts:
            fix = f"Set text.tokenizer to one that makes {' or '.join(self.accepts)}."
            raise invalid_argument("text.encoder", self.kind, f"an encoder of {tokenizer.produces}", fix)
        if tokenizer.vectors_file not in (None, self.vectors_file):
            fix = "Set text.encoder.words.vectors to the same file, since added words have no other vectors."
            allowed = f"null or {self.vectors_file}, the word vectors of the encoder"
            raise invalid_argument("text.tokenizer.words_of", tokenizer.vectors_file, allowed, fix)

    @property
    def vectors_file(self) -> str | None:
        """File of the word vectors; None without one."""
        return None


@dataclass(frozen=True)
class OuterTextEncoderPart(TextEncoderPart):
    """Base of the text encoders that change the embedding of another one, the attribute `encoder` of their layer.

    Attributes:
        encoder: the other encoder, of one vector per text.
    """

    encoder: TextEncoderPart

    def check(self) -> None:
        if self.encoder.produces != "vector":
            raise invalid_argument("text.encoder.encoder", self.encoder.kind, "an encoder of one vector per text")

    def check_tokenizer(self, tokenizer: TokenizerPart) -> None:
        self.encoder.check_tokenizer(tokenizer)

    @property
    def vectors_file(self) -> str | None:
        return self.encoder.vectors_file

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        self.encoder.initialize(layer.encoder, corpus)


@keras.saving.register_keras_serializable("vsemb")
class WordEmbedding(Configured, keras.layers.Layer):
    """Look up word vectors.

    Args:
        vocabulary_size: number of ids, `len(vocabulary)`: padding (0) and unknown (1) included.
        dim: size of a word vector.
        train_words: whether the vectors are trained; Kiros et al. 2014 keep them fixed.
        init_scale: vectors are initialized uniformly in [-init_scale, init_scale].
        word_dropout: share of words replaced by the unknown word in training.
        dropout: share of vector entries set to 0 in training.
        dense_gradient: whether the gradient has one row per word, the sum over all its occurrences. Otherwise it has
            one row per occurrence, and optimizers that square gradients add the squares of a repeated word's rows
            instead of squaring their sum. For characters, which repeat often, steps would be many times too large.
        **kwargs: arguments of `keras.layers.Layer`.

    Call args:
        token_ids: (batch, steps) int, 0 = padding; or (batch, steps, n), tokens whose first number is the id.
        training: whether dropout is applied.

    Returns:
        (batch, steps, dim).

    Example:

    >>> WordEmbedding(vocabulary_size=10, dim=4)(ops.ones((2, 3), "int32")).shape
    TensorShape([2, 3, 4])
    """

    #: Whether an unknown word has a vector of its own.
    composes: ClassVar[bool] = False

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
        start = keras.initializers.RandomUniform(-self.init_scale, self.init_scale)
        # With autocast, mixed precision would cast all words in each step.
        self.table = self.add_weight(
            (self.vocabulary_size, self.dim), start, trainable=self.train_words, autocast=False, name="table"
        )
        self._dropout_layer.build((*input_shape, self.dim))

    @property
    def tables(self) -> list[keras.Variable]:
        """The tables of vectors."""
        return [self.table]

    def call(self, token_ids: Tensor, training: bool = False) -> Tensor:
        if "int" not in keras.backend.standardize_dtype(token_ids.dtype):
            # Functional and sequential models of Keras turn ids into floats.
            token_ids = ops.cast(token_ids, "int32")
        vectors = ops.cast(self.look_up(outside_if_negative(token_ids), training), self.compute_dtype)
        return self._dropout_layer(vectors, training=training)

    def look_up(self, token_ids: Tensor, training: bool) -> Tensor:
        """Return the vectors of tokens before dropout; arguments and shape as `call`."""
        ids = self._with_unknown(word_ids(token_ids), training)
        return ops.take(self._rows(self.table, training), ids, axis=0)

    def _with_unknown(self, ids: Tensor, training: bool) -> Tensor:
        """Replace a share of the words by the unknown word in training."""
        if not (training and self.word_dropout):
            return ids
        draw = keras.random.uniform(ops.shape(ids), dtype="float32", seed=self.seed_generator)
        drop = ops.logical_and(ops.less(draw, self.word_dropout), ops.not_equal(ids, PADDING_ID))
        return ops.where(drop, ops.cast(UNKNOWN_ID, ids.dtype), ids)

    def _rows(self, table: Tensor, training: bool) -> Tensor:
        # The gradient of a product has the table's shape, that of `take` a row for every token.
        return ops.multiply(table, 1.0) if training and self.dense_gradient else table

    def set_vectors(self, vectors: np.ndarray, grams: np.ndarray | None = None) -> None:
        """Set the vectors of the words, e.g. from `vsemb.text.word_vectors.read_word_vectors`.

        Args:
            vectors: (vocabulary_size, dim) float.
            grams: n-grams of each word, see `TextCorpus`; only an `NGramEmbedding` reads them.

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
        return (*input_shape[:2], self.dim)


@keras.saving.register_keras_serializable("vsemb")
class NGramEmbedding(WordEmbedding):
    """Compose word vectors from the word and its n-grams of characters.

    A token is a word's id followed by its n-grams, as `vsemb.text.ngrams.NGramTokenizer` makes them. The vector is the
    vector of the word plus the mean of the vectors of its n-grams. An unknown word has only n-grams, so a word that was
    never seen resembles words that are spelled alike. Without known n-grams its vector is zero.

    Vectors of n-grams begin at zero. In contrast to the paper, where all vectors of a word have the same weight, word
    vectors that are set from outside keep their scale.

    Args:
        vocabulary_size: number of ids, padding (0) and unknown (1) included.
        dim: size of a word vector.
        buckets: number of vectors for n-grams; several n-grams may share one.
        **kwargs: arguments of `WordEmbedding`. Dropped words (`word_dropout`) keep their n-grams.

    Call args:
        token_ids: (..., 1 + n) int: id of a word, 0 = padding; then numbers of n-grams from 1 to `buckets`, 0 = none.
        training: whether dropout is applied.

    Returns:
        (..., dim).

    Example:

    >>> embedding = NGramEmbedding(vocabulary_size=10, dim=4, buckets=20)
    >>> embedding(ops.ones((2, 3, 6), "int32")).shape
    TensorShape([2, 3, 4])

    References:
        Bojanowski et al. Enriching Word Vectors with Subword Information. TACL 2017, arXiv:1607.04606.
    """

    composes: ClassVar[bool] = True

    def __init__(
        self, vocabulary_size: Annotated[int, at_least(2)], dim: int = 300, *, buckets: Count = 20_000, **kwargs: Any
    ) -> None:
        super().__init__(vocabulary_size, dim, **kwargs)
        self.keep_arguments(locals())

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.gram_table = self.add_weight(
            (self.buckets + 1, self.dim), "zeros", trainable=self.train_words, autocast=False, name="gram_table"
        )

    @property
    def tables(self) -> list[keras.Variable]:
        return [self.table, self.gram_table]

    def look_up(self, token_ids: Tensor, training: bool) -> Tensor:
        ids, grams = self._with_unknown(token_ids[..., 0], training), token_ids[..., 1:]
        whole = ops.cast(ops.not_equal(ids, UNKNOWN_ID), self.table.dtype)[..., None]
        own = ops.take(self._rows(self.table, training), ids, axis=0)
        return whole * own + mean_rows(self._rows(self.gram_table, training), grams)

    def set_vectors(self, vectors: np.ndarray, grams: np.ndarray | None = None) -> None:
        """Set the vectors of the words, and of the n-grams to the mean of the words that have them.

        Args:
            vectors: (vocabulary_size, dim) float, composed vectors: they are what `call` returns for the words.
            grams: (vocabulary_size, n) int, the n-grams of each word, 0 = none. Words without n-grams give n-grams
                nothing. None for zero vectors of all n-grams.

        Raises:
            InvalidArgumentError: for another shape or a value that is not finite.
        """
        super().set_vectors(vectors)
        table = np.zeros(self.gram_table.shape, np.float32)
        if grams is not None:
            rows, columns = np.nonzero(grams)
            numbers = grams[rows, columns]
            for first in range(0, len(rows), _BLOCK):
                block = slice(first, first + _BLOCK)
                np.add.at(table, numbers[block], vectors[rows[block]])
            table /= np.maximum(np.bincount(numbers, minlength=len(table)), 1)[:, None]
            self.table.assign(vectors - ops.convert_to_numpy(mean_rows(ops.convert_to_tensor(table), grams)))
        self.gram_table.assign(table)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape[:-1], self.dim)


def word_ids(token_ids: Tensor) -> Tensor:
    """Return the ids of tokens, (batch, steps), of plain ids or of tokens with more numbers, (batch, steps, n).

    Example:

    >>> word_ids(ops.convert_to_tensor([[[7, 0], [9, 1]]])).numpy().tolist()
    [[7, 9]]
    """
    return token_ids[..., 0] if len(token_ids.shape) == 3 else token_ids


def outside_if_negative(token_ids: Tensor) -> Tensor:
    """Return ids without their sign bit: a negative one, which would count from the end of a table, is behind its end.

    Example:

    >>> outside_if_negative(ops.convert_to_tensor([3, -1])).numpy().tolist()
    [3, 2147483647]
    """
    largest = np.iinfo(keras.backend.standardize_dtype(token_ids.dtype)).max
    if is_portable():
        # ONNX counts negative rows from the end of a table, and LiteRT has no `bitwise_and`.
        return ops.where(token_ids < 0, ops.cast(largest, token_ids.dtype), token_ids)
    return ops.bitwise_and(token_ids, largest)


def padding_mask(token_ids: Tensor) -> Tensor:
    """Return (batch, steps) bool, false for padding; tokens as in `word_ids`."""
    return ops.not_equal(word_ids(token_ids), PADDING_ID)


@dataclass(frozen=True)
class WordVectors(Part):
    """The word vectors of a text encoder.

    Attributes:
        dim: size of a word vector.
        vectors: path of pretrained vectors (text of GloVe, word2vec or fastText, `.bin` of word2vec, `.npz` or `.npy`,
            see `vsemb.text.word_vectors`), or `captions` for vectors learned from co-occurrences of words in the
            training captions; null for random ones.
        trainable: whether word vectors are trained.
        init_scale: random word vectors are uniform in +- this.
        dense_gradient: whether the gradients of a repeated word are added before the optimizer squares them.
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

    def build(self, spec: TextSpec, dtype: str) -> WordEmbedding:
        """Build the layer of vectors."""
        options = self.arguments("vectors", "trainable")
        return spec.embedding(train_words=self.trainable, dtype=dtype, **options)

    def initialize(self, layer: WordEmbedding, corpus: TextCorpus) -> None:
        """Set the vectors that `vectors` names.

        Raises:
            VsembError: if they cannot be read or have another size.
        """
        # `vsemb.text` imports TensorFlow, which encoders do without.
        from vsemb.text.word_vectors import cooccurrence_vectors, read_word_vectors

        if self.vectors == FROM_CAPTIONS:
            vectors = cooccurrence_vectors(corpus.ids, corpus.offsets, len(corpus.vocabulary), layer.dim)
            layer.set_vectors(vectors, corpus.grams)
        elif self.vectors is not None:
            if not corpus.whole_words:
                allowed = f"null or {FROM_CAPTIONS!r} with a tokenizer of subwords or characters"
                fix = "A file has vectors of whole words."
                raise invalid_argument("words.vectors", self.vectors, allowed, fix)
            vectors, count = read_word_vectors(self.vectors, corpus.vocabulary, corpus.seed)
            if (dim := vectors.shape[1]) != layer.dim:
                allowed = f"{dim}, the size of the vectors in {self.vectors}"
                raise invalid_argument("text.encoder.words.dim", layer.dim, allowed, f"Set it to {dim}.")
            layer.set_vectors(vectors, corpus.grams)
            say(f"word vectors for {count} of {len(corpus.vocabulary.words)} words")


@dataclass(frozen=True)
class WordEncoderPart(TextEncoderPart):
    """Base of the text encoders over word vectors.

    Attributes:
        words: the word vectors.

    Class attributes:
        layer: class of the layer; its arguments are the word vectors, `dim` and the fields of the part.
    """

    accepts: ClassVar[tuple[str, ...]] = ("ids", N_GRAMS)
    layer: ClassVar[type[keras.layers.Layer]]

    words: WordVectors = field(default_factory=WordVectors)

    @property
    def vectors_file(self) -> str | None:
        return self.words.vectors

    def build(self, dim: int | None, spec: TextSpec, dtype: str) -> keras.layers.Layer:
        words = self.words.build(spec, dtype)
        return self.layer(words, dim, dtype=dtype, **self.layer_arguments(spec))

    def layer_arguments(self, spec: TextSpec) -> dict[str, Any]:
        """Return the arguments of the layer besides word vectors and size."""
        return self.arguments()

    def initialize(self, layer: keras.layers.Layer, corpus: TextCorpus) -> None:
        self.words.initialize(layer.words, corpus)
