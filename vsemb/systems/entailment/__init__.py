"""Textual entailment as order of embeddings."""

from vsemb.registry import System

SYSTEM = System(
    name="entailment",
    recipes={"entailment": "vsemb.systems.entailment.recipe:ENTAILMENT"},
    parts={
        "task": dict.fromkeys(("entailment", "entailment-classes"), "vsemb.systems.entailment.recipe"),
        "protocol": {"entailment": "vsemb.systems.entailment.protocol"},
    },
    examples={
        "train": ("vsemb train entailment --data snli_1.0 --out runs/snli",),
        "evaluate": ("vsemb evaluate runs/snli --split test",),
    },
)
