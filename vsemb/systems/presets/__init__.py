"""Pretrained networks: CLIP and SigLIP as runs, their tokenizers and text towers, image backbones."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="presets",
    parts={
        "tokenizer": {"preset": "vsemb.systems.presets.tokenizer"},
        "text encoder": {"preset": "vsemb.systems.presets.text_encoder"},
    },
    presets=dict.fromkeys(("hub", "hf"), "vsemb.systems.presets.network:ImagePreset"),
    named_runs=dict.fromkeys(("hub", "hf"), "vsemb.systems.presets.pretrained:cached_run"),
    commands={
        "import": Command(
            "vsemb.systems.presets.api:import_preset",
            "make a run of a pretrained CLIP or SigLIP, without training",
            (
                "vsemb import clip_vit_base_patch16 --out runs/clip",
                "vsemb import hf://google/siglip2-base-patch16-224 --out runs/siglip2",
                "vsemb import downloads/clip_vit_base_patch32 --out runs/clip",
            ),
        )
    },
    examples={"features": ("vsemb features data/flickr8k --backbone hub:vit_base_patch16_224_imagenet",)},
)
