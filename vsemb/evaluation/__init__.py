"""Evaluation by the field's own protocols."""

from vsemb.evaluation.embed import Embedder
from vsemb.evaluation.entailment import EnergyMeasure, EntailmentMetrics, evaluate_entailment
from vsemb.evaluation.hypernymy import PairMetrics, Reconstruction, evaluate_pairs, reconstruct
from vsemb.evaluation.retrieval import RetrievalMetrics, evaluate_retrieval, retrieval_ranks

__all__ = [
    "Embedder",
    "EnergyMeasure",
    "EntailmentMetrics",
    "PairMetrics",
    "Reconstruction",
    "RetrievalMetrics",
    "evaluate_entailment",
    "evaluate_pairs",
    "evaluate_retrieval",
    "reconstruct",
    "retrieval_ranks",
]
