"""How the weights of a dual encoder start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vsemb.encoders.text_encoder import TextCorpus
from vsemb.models import DualEncoder
from vsemb.parts import Part


@dataclass(frozen=True)
class Initialization(Part, family="initialization"):
    """How weights start; base of the family `initialization`.

    Class attributes:
        accepts: the embeddings it is for, see `vsemb.similarities.Similarity.accepts`; None for all.
        maps_features: whether it sets the affine map of cached features.
    """

    accepts: ClassVar[str | None] = None
    maps_features: ClassVar[bool] = False

    def apply(self, model: DualEncoder, corpus: TextCorpus, rows: np.ndarray, features: np.ndarray | None) -> None:
        """Sets weights before the first step.

        Args:
            model: the model, built.
            corpus: the training texts.
            rows: (texts,) the image of each text.
            features: (images, dim) float32 features of the training images; None where there are none.

        Raises:
            InvalidArgumentError: if the model has not what it sets.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Random(Initialization, kind="random"):
    """Random weights."""

    def apply(self, model: DualEncoder, corpus: TextCorpus, rows: np.ndarray, features: np.ndarray | None) -> None:
        del model, corpus, rows, features
