"""Published tests beyond recall: judged positives, plausible matches and compositional tests."""

from vsemb.registry import System

SYSTEM = System(
    name="benchmarks",
    modes={
        "evaluate": {
            "positives": "vsemb.systems.benchmarks.commands:POSITIVES",
            "compositional": "vsemb.systems.benchmarks.commands:COMPOSITIONAL",
        },
    },
    examples={
        "evaluate": (
            "vsemb evaluate runs/coco --positives --files eccv_caption/data instances_val2014.json --split test",
            "vsemb evaluate runs/vsepp --compositional --files swap_att.json --images coco/val2017",
        ),
    },
)
