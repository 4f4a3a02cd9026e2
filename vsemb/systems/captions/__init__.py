"""Captions: recurrent models that write them, and their metrics."""

from vsemb.registry import System

SYSTEM = System(
    name="captions",
    commands={"caption": ("vsemb.systems.captions.caption_command", "write captions of images or of their regions")},
    modes={
        "evaluate": {
            "captions": "vsemb.systems.captions.evaluate_captions",
            "perplexity": "vsemb.systems.captions.evaluate_perplexity",
        },
        "caption": {"regions": "vsemb.systems.captions.caption_regions_command"},
    },
    options={
        "demo": ("vsemb.systems.captions.demo_option",),
        "export": ("vsemb.systems.captions.export_options",),
    },
    train_inputs={"alignment": "the dvsa run that cuts captions into snippets of regions"},
)
