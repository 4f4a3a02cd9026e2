"""Presets of keras-hub: CLIP and SigLIP as runs, their tokenizers and text towers, image backbones."""

from vsemb.registry import System

SYSTEM = System(
    name="presets",
    parts={
        "tokenizer": {"preset": "vsemb.systems.presets.tokenizer"},
        "text encoder": {"preset": "vsemb.systems.presets.text_encoder"},
    },
    presets={"hub": "vsemb.systems.presets.network:ImagePreset"},
    commands={
        "import": (
            "vsemb.systems.presets.commands:IMPORT",
            "make a run of a pretrained CLIP or SigLIP, without training",
        )
    },
    examples={"features": ("vsemb features data/flickr8k --backbone hub:vit_base_patch16_224_imagenet",)},
)
