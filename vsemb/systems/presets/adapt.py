"""Adapt a pretrained dual encoder, CLIP, MetaCLIP 2 or SigLIP, to images and captions.

Training starts from both published towers and the learned temperature, with the loss of the pretraining. The variants
train all weights (`full`, FLYP, Goyal et al. 2023, arXiv:2212.00638), low-rank updates (`lora`), or the text tower
(`locked-images`).

| equation | content | code |
| --- | --- | --- |
| CLIP, figure 3 | symmetric cross entropy over the batch | `vsemb.losses.InfoNCE` |
| SigLIP, section 3.2 | sigmoid loss over all pairs, for SigLIP's presets | `vsemb.losses.SigmoidLoss` |
| LoRA, equation 3 (arXiv:2106.09685) | a matrix plus a product of low rank | `adaptation.Lora` |
| LiT, section 3 (arXiv:2111.07991) | locked image tower | `adaptation.LockedImages` |
| WiSE-FT, equation 1 (arXiv:2109.01903) | weights between published and adapted ones | `vsemb interpolate` |

Deviations: LiT trains a new text tower, and here it starts from the published one. FLYP takes batches of 512 pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import keras

from vsemb.data.batches import Pairs
from vsemb.encoders.image import NoProjection
from vsemb.errors import invalid_argument
from vsemb.image.presets import display_name, is_preset
from vsemb.losses.contrastive import Contrastive
from vsemb.recipes.retrieval import Retrieval, RetrievalJob
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Pixels, Text
from vsemb.systems.presets.adaptation import Adaptation, Full, LockedImages, Lora
from vsemb.systems.presets.files import build_network, load_network
from vsemb.systems.presets.network import ImagePreset
from vsemb.systems.presets.pretrained import pretrained_loss, pretrained_text
from vsemb.systems.presets.text_encoder import PresetEncoder
from vsemb.systems.presets.tokenizer import PresetTokens
from vsemb.training.optimizers import AdamW, Cosine

if TYPE_CHECKING:
    from vsemb.runs.run import Run

# The published temperature of CLIP is its limit.
_NAME, _TEMPERATURE = "hub:clip_vit_base_patch32", 0.01


@dataclass(frozen=True)
class Adapted(Retrieval, kind="adapted"):
    """A pretrained dual encoder that is trained further.

    `fine_tune` names another preset than CLIP ViT-B/32: it sets both towers, the tokenizer, and the loss with the
    learned temperature.

    Attributes:
        adaptation: which weights are trained.
    """

    adaptation: Adaptation = field(default_factory=Full)

    def check(self) -> None:
        super().check()
        images, texts = getattr(self.image, "backbone", ""), getattr(self.text.encoder, "name", "")
        if display_name(images) != display_name(texts):
            fix = "Name another preset as `fine_tune`, which sets both towers."
            raise invalid_argument("image.backbone", images, f"{texts}, the preset of the text tower", fix)

    def with_pixels(self, image: Any) -> Self:
        name = image.backbone
        allowed = f"a preset of CLIP, MetaCLIP 2 or SigLIP, such as {_NAME}"
        if not is_preset(name):
            fix = "To train an image network and a new text encoder, use another recipe, such as contrastive."
            raise invalid_argument("fine_tune", name, allowed, fix)
        if image.weights not in (None, "preset"):
            fix = "Name the preset that the run was made of; a run of `adapt` continues with more `epochs`."
            raise invalid_argument("fine_tune", image.weights, allowed, fix)
        network = load_network(name) if image.weights else build_network(ImagePreset.open(name).network)
        loss, text = pretrained_loss(network), pretrained_text(name, image.weights)
        image = replace(image, projection=NoProjection())
        return replace(self, image=image, text=text, loss=loss, embedding_dim=None)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> AdaptedJob:
        return AdaptedJob(self, data)


class AdaptedJob(RetrievalJob):
    """The training of `Adapted` on a dataset, see `RetrievalJob`."""

    def model(self, recipe: Any, dtype: str) -> keras.Model:
        """Build the model with the published weights, and choose the trained ones."""
        model = super().model(recipe, dtype)
        recipe.adaptation.apply(model)
        return model


def _recipe(variant: str, paper: str, adaptation: Adaptation, learning_rate: float) -> Adapted:
    return Adapted(
        name="adapt",
        variant=variant,
        paper=paper,
        embedding_dim=None,
        text=Text(tokenizer=PresetTokens(name=_NAME), encoder=PresetEncoder(name=_NAME, weights="preset")),
        image=Pixels(backbone=_NAME, weights="preset", projection=NoProjection()),
        loss=Contrastive(temperature=_TEMPERATURE),
        optimizer=AdamW(learning_rate=learning_rate, schedule=Cosine(warmup_epochs=0.5), weight_decay=0.1),
        batches=Pairs(size=128),
        # Activations of this many pairs are in memory at a time.
        chunk_size=8,
        training=Training(epochs=5),
        adaptation=adaptation,
    )


#: Variant -> recipe.
ADAPT = {
    "full": _recipe("full", "Goyal et al. 2023, arXiv:2212.00638", Full(), 1e-5),
    "lora": _recipe("lora", "Hu et al. 2022, arXiv:2106.09685", Lora(), 5e-4),
    "locked-images": _recipe("locked-images", "Zhai et al. 2022, arXiv:2111.07991", LockedImages(), 1e-5),
}
