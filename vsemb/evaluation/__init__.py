"""Evaluation by the field's own protocols."""

from vsemb.evaluation.embed import Embedder
from vsemb.evaluation.retrieval import RetrievalMetrics, evaluate_retrieval, retrieval_ranks

__all__ = [
    "Embedder",
    "RetrievalMetrics",
    "evaluate_retrieval",
    "retrieval_ranks",
]
