"""Which weights of a pretrained dual encoder a training changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import keras

from vsemb.errors import invalid_argument
from vsemb.parts import Part, Size

# Layers with a matrix. Vectors of tokens and networks of keras-hub have `enable_lora`, too.
_MAPS = (keras.layers.Dense, keras.layers.EinsumDense)
# Choice of `Lora.layers` -> names of layers; None for every layer that Keras can extend.
_LAYERS: dict[str, tuple[str, ...] | None] = {
    "query-value": ("query", "value"),
    "attention": ("query", "key", "value", "attention_output"),
    "all": None,
}


@dataclass(frozen=True)
class Adaptation(Part, family="adaptation"):
    """Which weights a training changes; base of the family `adaptation`."""

    def apply(self, model: keras.Model) -> None:
        """Choose the trained weights of a model.

        Args:
            model: a built `vsemb.models.DualEncoder` with its initial weights.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Full(Adaptation, kind="full"):
    """All weights of both towers, as in FLYP (Goyal et al. 2023, arXiv:2212.00638)."""

    def apply(self, model: keras.Model) -> None:
        """Change nothing: weights of a model are trained by default."""


@dataclass(frozen=True)
class LockedImages(Adaptation, kind="locked-images"):
    """The text tower alone, as in LiT (Zhai et al. 2022, arXiv:2111.07991)."""

    def apply(self, model: keras.Model) -> None:
        model.image_encoder.trainable = False


@dataclass(frozen=True)
class Lora(Adaptation, kind="lora"):
    """Low-rank updates of matrices, by Keras' `enable_lora` (Hu et al. 2022, arXiv:2106.09685).

    A matrix W becomes W + A B, where A has `rank` columns and B starts at zero; the matrices of an attention head have
    an A of their own and share B. Only A, B and the learned temperature are trained. Weights files contain the sum, so
    a trained run has no more weights than the preset.

    Attributes:
        rank: number of columns of A.
        layers: updated layers of both towers: the queries and values of attention, as in the paper; all four layers of
            attention; or all dense layers.
    """

    rank: Size = 8
    layers: Literal["query-value", "attention", "all"] = "query-value"

    def apply(self, model: keras.Model) -> None:
        names = _LAYERS[self.layers]
        # By identity, since a layer can be reached in several ways.
        updated: dict[int, keras.layers.Layer] = {}
        for encoder in (model.image_encoder, model.text_encoder):
            for variable in encoder.trainable_variables:
                variable.trainable = False
            for layer in encoder._flatten_layers():
                if isinstance(layer, _MAPS) and (names is None or layer.name in names):
                    updated[id(layer)] = layer
        for layer in updated.values():
            layer.enable_lora(self.rank)
        if not updated:
            allowed = f"all, since no layer of this preset has one of the names {', '.join(names or ())}"
            raise invalid_argument("adaptation.layers", self.layers, allowed)
