"""Captions: recurrent models that write them, and their metrics."""

from vsemb.registry import System

SYSTEM = System(
    name="captions",
    recipes={
        "multimodal-rnn": "vsemb.systems.captions.karpathy2015_captions:MULTIMODAL_RNN",
        "multimodal-rnn-regions": "vsemb.systems.captions.karpathy2015_captions:MULTIMODAL_RNN_REGIONS",
    },
    parts={
        "task": {
            "captions": "vsemb.systems.captions.recipe",
            "region-captions": "vsemb.systems.captions.region_recipe",
        },
        "image tower": {"snippet-regions": "vsemb.systems.captions.region_recipe"},
        "decoder": {
            "recurrent": "vsemb.systems.captions.multimodal_rnn",
            "attentive": "vsemb.systems.captions.attentive_rnn",
        },
        "caption validation": dict.fromkeys(("perplexity", "cider"), "vsemb.systems.captions.validation"),
    },
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
    charts={
        "Perplexity on validation": {"val_perplexity": "perplexity"},
        "CIDEr on validation": {"val_cider": "CIDEr"},
    },
    report_sections=("vsemb.systems.captions.report:sections",),
    demo_tabs=("vsemb.systems.captions.demo:tabs",),
    client_methods={"caption": "vsemb.systems.captions.client:caption"},
)
