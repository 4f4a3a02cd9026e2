"""The entailment model: does one sentence follow from another?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from vsemb.errors import unknown_name
from vsemb.models.replicated import ReplicatedModel
from vsemb.similarities import Cosine, OrderViolation, Similarity

Tensor = Any

#: comparison -> the geometry that embeddings are brought into.
COMPARISONS: dict[str, type[Similarity]] = {"order": OrderViolation, "symmetric": Cosine}


@keras.saving.register_keras_serializable("vsemb")
class EntailmentModel(ReplicatedModel):
    """Sentences in a partial order: a hypothesis follows from a premise where it lies above it.

    Vendrov et al. 2016, section 5. One encoder embeds both sides; the energy of a pair is small where
    the premise entails the hypothesis. Train it with `fit` on (inputs, label), label 1 for entailment, and
    `vsemb.systems.entailment.max_margin.MaxMargin`; a threshold of the energy, found on validation, then
    classifies.

    Args:
        text_encoder: layer from token ids to (n, dim).
        comparison: `"order"`, the order violation E(premise, hypothesis) of embeddings |x| / ||x||
            (equation 2), in [0, 1]; or `"symmetric"`, the paper's baseline: the cosine distance of
            embeddings x / ||x||, in [0, 2].
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"premise": (n, steps) int, "hypothesis": (n, steps) int}, token ids, 0 = padding; the
            two may have different steps.
        training: whether dropout acts.

    Returns:
        (n,) float32 energies.

    Raises:
        InvalidArgumentError: for an unknown comparison.

    Example:

    >>> import numpy as np
    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> from vsemb.systems.entailment.max_margin import MaxMargin
    >>> model = EntailmentModel(LinearSentenceEncoder(WordEmbedding(10, 4)))
    >>> model.compile("adam", loss=MaxMargin(margin=0.2))
    >>> model({"premise": np.ones((2, 3), int), "hypothesis": np.ones((2, 5), int)}).shape
    TensorShape([2])
    """

    def __init__(self, text_encoder: keras.layers.Layer, comparison: str = "order", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if comparison not in COMPARISONS:
            raise unknown_name("comparison", comparison, COMPARISONS)
        self.text_encoder = text_encoder
        self.comparison = comparison
        self._geometry = COMPARISONS[comparison]()

    def build(self, input_shape: Any = None) -> None:
        del input_shape  # Token ids of any number and length.
        if not self.text_encoder.built:
            self.text_encoder.build((None, None))

    def encode_texts(self, token_ids: Tensor, training: bool = False) -> Tensor:
        """Embeds token ids; (n, steps) -> (n, dim) float32 of unit length, for `"order"` without sign."""
        return self._geometry.normalize(self.text_encoder(token_ids, training=training))

    def energies(self, premises: Tensor, hypotheses: Tensor) -> Tensor:
        """Compares embeddings row by row.

        Args:
            premises: (n, dim) embeddings of the premises.
            hypotheses: (n, dim) embeddings of the hypotheses.

        Returns:
            (n,) float32, small where the premise entails the hypothesis.
        """
        # A premise stands where an image does: below what it entails.
        scores = self._geometry.pair_scores(premises, hypotheses)
        return -scores if self.comparison == "order" else 1.0 - scores

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        premises = self.encode_texts(inputs["premise"], training=training)
        hypotheses = self.encode_texts(inputs["hypothesis"], training=training)
        return self.energies(premises, hypotheses)

    def get_config(self) -> dict[str, Any]:
        encoder = keras.saving.serialize_keras_object(self.text_encoder)
        return {**super().get_config(), "text_encoder": encoder, "comparison": self.comparison}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> EntailmentModel:
        encoder = keras.saving.deserialize_keras_object(config["text_encoder"], custom_objects)
        return cls(**{**config, "text_encoder": encoder})
