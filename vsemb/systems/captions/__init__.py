"""Captions: recurrent captioning models and caption metrics."""

from vsemb.registry import Command, System

SYSTEM = System(
    name="captions",
    recipes={
        "multimodal-rnn": "vsemb.systems.captions.karpathy2015_captions:MULTIMODAL_RNN",
        "multimodal-rnn-regions": "vsemb.systems.captions.karpathy2015_captions:MULTIMODAL_RNN_REGIONS",
    },
    parts={
        "task": {
            "captions": "vsemb.systems.captions.recipe",
            "region-captions": "vsemb.systems.captions.recipe",
        },
        "image tower": dict.fromkeys(("snippet-regions", "regions-in-context"), "vsemb.systems.captions.recipe"),
        "decoder": {
            "recurrent": "vsemb.systems.captions.multimodal_rnn",
            "attentive": "vsemb.systems.captions.multimodal_rnn",
        },
        "protocol": dict.fromkeys(
            ("captions", "region-captions", "perplexity", "likelihood", "rerank"), "vsemb.systems.captions.protocols"
        ),
        "export option": {"captions": "vsemb.systems.captions.options"},
        "report option": {"captions": "vsemb.systems.captions.options"},
        "demo option": {"captions": "vsemb.systems.captions.options"},
        "search option": {"captions": "vsemb.systems.captions.options"},
        "caption validation": dict.fromkeys(("perplexity", "cider"), "vsemb.systems.captions.validation"),
    },
    commands={
        "caption": Command(
            "vsemb.systems.captions.api:caption",
            "write captions of images",
            (
                "vsemb caption runs/captions dog.jpg beach.jpg",
                "vsemb caption runs/captions dog.jpg --beam 20 --n-best 10 --json captions.json",
                "vsemb caption runs/captions dog.jpg --sample top-p=0.9 --seed 7",
                "vsemb caption runs/sc-nlm dog.jpg --n-best 1",
            ),
        ),
        "caption-regions": Command(
            "vsemb.systems.captions.api:caption_regions",
            "write captions of the regions of an image",
            ("vsemb caption-regions runs/snippets street.jpg --most 8 --parts --out regions.png",),
        ),
    },
    examples={
        "train": (
            "vsemb train multimodal-rnn --data data/flickr8k --out runs/captions",
            "vsemb train multimodal-rnn-regions --inputs alignment=runs/dvsa --data data/flickr8k --out runs/snippets",
        ),
        "evaluate": (
            "vsemb evaluate runs/captions --beside runs/sc-nlm --examples 5",
            "vsemb evaluate runs/captions --protocol likelihood --first 100",
            "vsemb evaluate runs/vsepp --protocol rerank --captioner runs/captions",
        ),
        "search": ('vsemb search runs/vsepp "a dog on a beach" --rerank runs/captions',),
        "demo": ("vsemb demo runs/vsepp --captions runs/captions",),
        "export": ("vsemb export runs/captions savedmodels/captions --beam 7 --n-best 5",),
        "report": ("vsemb report runs/captions --split test",),
    },
    charts={
        "Perplexity on validation": {"val_perplexity": "perplexity"},
        "CIDEr on validation": {"val_cider": "CIDEr"},
    },
    report_sections=("vsemb.systems.captions.report:sections",),
    demo_tabs=("vsemb.systems.captions.demo:tabs",),
    client_methods={"caption": "vsemb.systems.captions.client:caption"},
)
