"""Textual entailment as order of embeddings."""
