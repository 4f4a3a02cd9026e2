"""Published tests beyond recall: judged positives, plausible matches and compositional tests."""

from vsemb.registry import System

SYSTEM = System(
    name="benchmarks",
    parts={"protocol": dict.fromkeys(("positives", "compositional"), "vsemb.systems.benchmarks.protocols")},
    examples={
        "evaluate": (
            "vsemb evaluate runs/coco --protocol positives --files eccv_caption/data instances.json --split test",
            "vsemb evaluate runs/vsepp --protocol compositional --files swap_att.json --images coco/val2017",
        ),
    },
)
