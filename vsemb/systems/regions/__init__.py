"""Regions and words: detections, alignment, pointing."""

from vsemb.registry import System

SYSTEM = System(
    name="regions",
    commands={
        "regions": ("vsemb.systems.regions.regions_command", "find regions of images and cache their features"),
        "align": ("vsemb.systems.regions.align_command", "align the words of a sentence with regions of an image"),
    },
    modes={
        "evaluate": {"pointing": "vsemb.systems.regions.evaluate_pointing"},
        "search": {"regions": "vsemb.systems.regions.search_command"},
        "analyze": {"norms": "vsemb.systems.regions.norms_command"},
    },
)
