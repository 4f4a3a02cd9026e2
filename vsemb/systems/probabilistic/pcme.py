"""Chun 2024: Improved Probabilistic Image-Text Representations (PCME++, arXiv:2305.18171)."""

from __future__ import annotations

from dataclasses import replace

from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.towers import Features
from vsemb.systems.probabilistic.heads import Gaussian, GaussianAffine
from vsemb.systems.probabilistic.matching_loss import Matching
from vsemb.systems.probabilistic.similarity import SampledDistance

_CLIP = CONTRASTIVE["default"]

PCME = {
    "default": replace(
        _CLIP,
        name="pcme",
        paper="Chun 2024, arXiv:2305.18171",
        embedding_dim=1024,
        similarity=SampledDistance(),
        text=replace(_CLIP.text, encoder=Gaussian(encoder=_CLIP.text.encoder)),
        image=Features(standardize=True, projection=GaussianAffine()),
        loss=Matching(),
    ),
}
