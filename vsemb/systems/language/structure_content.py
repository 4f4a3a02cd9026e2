"""Structure-content neural language model, SC-NLM (Kiros et al. 2014, equation 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import keras
from keras import ops

from vsemb.encoders import WordEmbedding
from vsemb.parts import Count, at_least, between
from vsemb.recipes.info import untyped
from vsemb.systems.language.log_bilinear import ContextModel, Tensor
from vsemb.systems.language.multiplicative import Multiplicative, MultiplicativePart

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


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
class StructureContentPart(MultiplicativePart, kind="sc-nlm"):
    """Structure-content model, also conditioned on parts of speech (Kiros et al. 2014, equation 11).

    Attributes:
        structure: number of following parts of speech in addition to the word's own.
    """

    model: ClassVar[type[keras.Model]] = StructureContent
    reads_tags: ClassVar[bool] = True

    structure: Annotated[int, between(0, 64)] = 3

    def sizes(self, info: RunInfo) -> dict[str, int]:
        return {**super().sizes(info), "tags": len(untyped(info)["tag_names"])}
