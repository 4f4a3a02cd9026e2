"""Multiplicative neural language model (Kiros et al. 2014, equations 9 and 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.parts import Count, Part, Size, between
from vsemb.recipes.info import untyped
from vsemb.systems.language.log_bilinear import ContextModel, LanguageModel, Tensor

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


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
class ContentPart(LanguageModel):
    """Base of the models that are conditioned on an embedding of the sentence.

    Attributes:
        writing: settings of caption generation.
    """

    reads_content: ClassVar[bool] = True

    writing: Writing = field(default_factory=Writing)

    @property
    def how_written(self) -> str:
        return f"the best of {self.writing.candidates:,} candidates"

    def sizes(self, info: RunInfo) -> dict[str, int]:
        return {"content_dim": untyped(info)["content_dim"]}


@dataclass(frozen=True)
class MultiplicativePart(ContentPart, kind="multiplicative"):
    """Multiplicative model, conditioned on an embedding of the sentence (Kiros et al. 2014, equations 9 and 10).

    Attributes:
        factors: number of factors of the tensor.
    """

    model: ClassVar[type[keras.Model]] = Multiplicative

    factors: Size = 100
