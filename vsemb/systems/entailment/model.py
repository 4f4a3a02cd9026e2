"""The entailment model: energies of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from vsemb.configured import Configured, build_layers
from vsemb.models.replicated import ReplicatedModel
from vsemb.similarities import Similarity, get

Tensor = Any


@keras.saving.register_keras_serializable("vsemb")
class EntailmentModel(Configured, ReplicatedModel):
    """Sentence embeddings in a partial order: a premise entails the hypotheses above it.

    Vendrov et al. 2016, section 5. One encoder embeds both sides. The energy of a pair is small if the premise entails
    the hypothesis. Train with `fit` on (inputs, label) and the loss `vsemb.losses.max_margin.MaxMargin`; the label is 1
    for entailment. A threshold of the energy, found on validation, classifies pairs.

    Args:
        text_encoder: layer from token ids to (n, dim).
        similarity: `"order"` (the default): the energy is the order violation E(premise, hypothesis) of embeddings
            |x| / ||x|| (equation 2), in [0, 1]. `"cosine"`: the cosine distance of embeddings x / ||x||, in [0, 2], the
            paper's symmetric baseline. Or another similarity with a `self_score`.
        **kwargs: arguments of `keras.Model`.

    Call args:
        inputs: {"premise": (n, steps) int, "hypothesis": (n, steps) int}, token ids, 0 = padding; steps may differ
            between the two.
        training: whether dropout acts.

    Returns:
        (n,) float32 energies.

    Raises:
        InvalidArgumentError: for an unknown similarity.

    Example:

    >>> import numpy as np
    >>> from vsemb.encoders import LinearSentenceEncoder, WordEmbedding
    >>> from vsemb.losses.max_margin import MaxMargin
    >>> model = EntailmentModel(LinearSentenceEncoder(WordEmbedding(10, 4)))
    >>> model.compile("adam", loss=MaxMargin(margin=0.2))
    >>> model({"premise": np.ones((2, 3), int), "hypothesis": np.ones((2, 5), int)}).shape
    TensorShape([2])
    """

    input_names = ("premise", "hypothesis")

    def __init__(self, text_encoder: keras.layers.Layer, similarity: str | Similarity = "order", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_arguments(locals())
        self.similarity = get(similarity)

    def build(self, input_shape: Any = None) -> None:
        # Token ids of any batch size and length.
        build_layers((self.text_encoder, (None, None)))

    def encode_texts(self, token_ids: Tensor, training: bool = False) -> Tensor:
        """Embed token ids: (n, steps) -> (n, dim) float32 in the similarity's geometry."""
        return self.similarity.normalize(self.text_encoder(token_ids, training=training))

    def energies(self, premises: Tensor, hypotheses: Tensor) -> Tensor:
        """Compare embeddings row by row.

        Args:
            premises: (n, dim) embeddings of the premises.
            hypotheses: (n, dim) embeddings of the hypotheses.

        Returns:
            (n,) float32, small if the premise entails the hypothesis.
        """
        # The premise is the first argument, like an image: it is below its hypotheses in the order.
        return self.similarity.self_score - self.similarity.pair_scores(premises, hypotheses)

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        premises = self.encode_texts(inputs["premise"], training=training)
        hypotheses = self.encode_texts(inputs["hypothesis"], training=training)
        return self.energies(premises, hypotheses)
