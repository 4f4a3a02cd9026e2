"""Evaluation by the standard protocols of the field."""

from vsemb.evaluation.comparison import PairedDifference, compare_ranks
from vsemb.evaluation.embed import Embedder
from vsemb.evaluation.retrieval import RetrievalMetrics, evaluate_retrieval, retrieval_ranks

__all__ = ["Embedder", "PairedDifference", "RetrievalMetrics", "compare_ranks", "evaluate_retrieval", "retrieval_ranks"]
