"""Regions and words: detections, alignment, pointing."""

from vsemb.registry import System

SYSTEM = System(
    name="regions",
    recipes={"dvsa": "vsemb.systems.regions.dvsa:DVSA"},
    parts={
        "image tower": {"regions": "vsemb.systems.regions.image_tower"},
        "text encoder": {"contextual-tokens": "vsemb.systems.regions.contextual_tokens"},
        "similarity": dict.fromkeys(
            ("max-sim", "sum-sim", "late-interaction", "cross-attention"), "vsemb.systems.regions.similarities"
        ),
    },
    commands={
        "regions": ("vsemb.systems.regions.regions_command", "find regions of images and cache their features"),
        "align": ("vsemb.systems.regions.align_command", "align the words of a sentence with regions of an image"),
    },
    modes={
        "evaluate": {"pointing": "vsemb.systems.regions.evaluate_pointing"},
        "search": {"regions": "vsemb.systems.regions.search_command"},
        "analyze": {"norms": "vsemb.systems.regions.norms_command"},
    },
    searchers={"multi_vector": "vsemb.systems.regions.set_search:MultiVectorSearch"},
    report_sections=("vsemb.systems.regions.report:sections",),
    client_methods={
        "align": "vsemb.systems.regions.client:align",
        "encode_regions": "vsemb.systems.regions.client:encode_regions",
    },
)
