"""Additive neural language model: the modality-biased log-bilinear model of Kiros et al., ICML 2014."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
from keras import ops

from vsemb.parts import Count
from vsemb.systems.language.log_bilinear import LogBilinear, Tensor
from vsemb.systems.language.multiplicative import ContentPart


@keras.saving.register_keras_serializable("vsemb")
class Additive(LogBilinear):
    """Log-bilinear model with a content vector u that is added to the predicted vector.

    r = sum over i of C^(i) w_i + C^(m) u, and P(word) is the softmax of r . r_word + b_word. It is the model MLBL-B of
    Kiros, Salakhutdinov and Zemel, and the "additive variant" of Kiros et al. 2014, section 2.4. In contrast to
    `Multiplicative`, u changes the log-odds of two next words by the same amount after every context.

    Args:
        vocabulary_size: number of ids, including START and END (0) and unknown (1).
        dim: size of a word vector, K; default 300.
        context: number of previous words; default 5.
        content_dim: size of the content vector, G.
        dropout: dropout rate of the predicted vector.
        word_dropout: share of context words replaced by the unknown word in training.
        init_scale: word vectors are initialized uniformly in [-init_scale, init_scale].
        l2: see `NextWordModel`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"text": (n, steps) int32, 0 = padding on the right; "content": (n, content_dim) float}.
        training: whether to apply dropout.

    Returns:
        (n, steps + 1, vocabulary_size) float32 logits of each word and of END (0).

    Example:

    >>> model = Additive(vocabulary_size=10, dim=4, context=2, content_dim=6)
    >>> model({"text": ops.ones((3, 5), "int32"), "content": ops.ones((3, 6))}).shape
    TensorShape([3, 6, 10])

    References:
        Kiros, Salakhutdinov, Zemel. Multimodal Neural Language Models. ICML 2014.
    """

    def __init__(
        self, vocabulary_size: int, dim: int = 300, context: int = 5, *, content_dim: Count, **kwargs: Any
    ) -> None:
        super().__init__(vocabulary_size, dim, context, **kwargs)
        self.keep_arguments(locals())

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        # Glorot's range gives a content vector of unit length a term of the size of a word vector.
        self.content_kernel = self.add_weight(
            shape=(self.content_dim, self.dim), initializer="glorot_uniform", name="content_kernel"
        )

    def _gates(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return ops.expand_dims(ops.matmul(self._cast(inputs["content"]), self._cast(self.content_kernel)), 1)

    def _conditioned(self, predicted: Tensor, gates: Tensor) -> Tensor:
        return predicted + gates

    def start(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**super().start(inputs), "gates": ops.squeeze(self._gates(inputs), 1)}


@dataclass(frozen=True)
class AdditivePart(ContentPart, kind="additive"):
    """Additive model, conditioned on an embedding of the sentence (MLBL-B of Kiros et al., ICML 2014)."""

    model: ClassVar[type[keras.Model]] = Additive
