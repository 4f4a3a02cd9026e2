"""Pretrained networks: CLIP and SigLIP as runs; BERT and its relatives as text towers; tokenizers, image backbones."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="presets",
    recipes={"adapt": "vsemb.systems.presets.adapt:ADAPT"},
    parts={
        "task": {"adapted": "vsemb.systems.presets.adapt"},
        "adaptation": dict.fromkeys(("full", "lora", "locked-images"), "vsemb.systems.presets.adaptation"),
        "tokenizer": {"preset": "vsemb.systems.presets.tokenizer"},
        "text encoder": {"preset": "vsemb.systems.presets.text_encoder"},
    },
    presets=dict.fromkeys(("hub", "hf"), "vsemb.systems.presets.network:ImagePreset"),
    named_runs=dict.fromkeys(("hub", "hf"), "vsemb.systems.presets.pretrained:cached_run"),
    # Settings of a preset of keras-hub, or of a checkpoint of transformers or open_clip.
    run_files=dict.fromkeys(("config.json", "open_clip_config.json"), "hub"),
    commands={
        "import": Command(
            "vsemb.systems.presets.api:import_preset",
            "make a run of a pretrained CLIP or SigLIP, without training",
            (
                "vsemb import clip_vit_base_patch16 --out runs/clip",
                "vsemb import hf://google/siglip2-base-patch16-224 --out runs/siglip2",
                "vsemb import downloads/clip_vit_base_patch32 --out runs/clip",
            ),
        ),
        "interpolate": Command(
            "vsemb.systems.presets.api:interpolate",
            "mix the weights of an adapted run with its initial ones",
            ("vsemb interpolate hub:clip_vit_base_patch32 runs/adapted --share 0.5 --out runs/mixed",),
        ),
    },
    examples={
        "train": (
            "vsemb train adapt --variant lora --fine-tune hub:clip_vit_base_patch16 --data data/mine --out runs/mine",
        ),
        "features": ("vsemb features data/flickr8k --backbone hub:vit_base_patch16_224_imagenet",),
    },
)
