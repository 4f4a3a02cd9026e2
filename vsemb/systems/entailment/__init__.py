"""Textual entailment as order of embeddings."""

from vsemb.registry import System

SYSTEM = System(
    name="entailment",
    modes={"evaluate": {"entailment": "vsemb.systems.entailment.evaluate_entailment"}},
)
