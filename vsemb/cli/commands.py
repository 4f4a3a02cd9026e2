"""The commands of the base: name, function, summary, examples."""

from __future__ import annotations

from vsemb.registry import Command

COMMANDS = {
    "annotate": Command("vsemb.api.data:annotate", "annotate the captions of a dataset", ()),
    "evaluate": Command(
        "vsemb.api.evaluation:evaluate",
        "measure a run with a standard protocol",
        (
            "vsemb evaluate runs/vsepp --data data/flickr8k --split test --json metrics.json",
            "vsemb evaluate runs/coco --data data/coco --split test --folds 5",
            "vsemb evaluate runs/vsepp --split test --pairs 1000 --recalls 1 5 10 20 50",
        ),
    ),
    "analyze": Command(
        "vsemb.api.evaluation:analyze",
        "compare or inspect trained runs",
        ("vsemb analyze lengths runs/order runs/symmetric --data data/flickr8k --images 1000",),
    ),
}
