"""Desai et al. 2023: Hyperbolic Image-Text Representations (MERU, arXiv:2304.09172)."""

from __future__ import annotations

from dataclasses import replace

from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.towers import Features
from vsemb.systems.hyperbolic.entailment_loss import ContrastiveEntailment
from vsemb.systems.hyperbolic.scaling import Scaled, ScaledAffine
from vsemb.systems.hyperbolic.similarity import Lorentz

_CLIP = CONTRASTIVE["default"]

MERU = {
    "default": replace(
        _CLIP,
        name="meru",
        paper="Desai et al. 2023, arXiv:2304.09172",
        similarity=Lorentz(),
        text=replace(_CLIP.text, encoder=Scaled(encoder=_CLIP.text.encoder)),
        image=Features(projection=ScaledAffine()),
        loss=ContrastiveEntailment(image_weight=0.5, text_weight=0.5),
    ),
}
