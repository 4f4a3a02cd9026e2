"""Textual entailment as order of embeddings."""

from vsemb.registry import System

SYSTEM = System(name="entailment")
