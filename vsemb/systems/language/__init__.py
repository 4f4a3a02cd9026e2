"""Multimodal language models over a joint embedding (Kiros et al. 2014)."""

from vsemb.registry import System

SYSTEM = System(
    name="language",
    recipes={
        "log-bilinear": "vsemb.systems.language.kiros2014_language:LOG_BILINEAR",
        "additive": "vsemb.systems.language.kiros2014_language:ADDITIVE",
        "multiplicative": "vsemb.systems.language.kiros2014_language:MULTIPLICATIVE",
        "sc-nlm": "vsemb.systems.language.kiros2014_language:SC_NLM",
    },
    parts={
        "task": {"language": "vsemb.systems.language.kiros2014_language"},
        "reader": {"sentences": "vsemb.systems.language.plain_text"},
        "annotation": {"pos-tags": "vsemb.systems.language.annotation"},
        "language model": {
            "log-bilinear": "vsemb.systems.language.log_bilinear",
            "additive": "vsemb.systems.language.additive",
            "multiplicative": "vsemb.systems.language.multiplicative",
            "sc-nlm": "vsemb.systems.language.structure_content",
        },
    },
    annotations={"tags": "vsemb.systems.language.tags:find"},
    examples={
        "annotate": (
            "vsemb annotate data/flickr8k pos-tags",
            "vsemb annotate data/flickr8k pos-tags --file pos_tags.txt.gz",
        ),
        "prepare": ("vsemb prepare books/ --format sentences --split train --out data/books",),
        "train": (
            "vsemb train sc-nlm --inputs encoder=runs/kiros --data data/flickr8k --out runs/sc-nlm",
            "vsemb train sc-nlm --inputs encoder=runs/kiros --data data/flickr8k "
            "--set sentences=data/books --out runs/books",
        ),
        "evaluate": ("vsemb evaluate runs/sc-nlm --beside runs/multiplicative runs/log-bilinear",),
    },
)
