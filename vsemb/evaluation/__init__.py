"""Evaluation by the field's own protocols."""

from vsemb.evaluation.captions import CaptionMetrics, evaluate_captions
from vsemb.evaluation.embed import Embedder
from vsemb.evaluation.entailment import EnergyMeasure, EntailmentMetrics, evaluate_entailment
from vsemb.evaluation.hypernymy import PairMetrics, Reconstruction, evaluate_pairs, reconstruct
from vsemb.evaluation.retrieval import RetrievalMetrics, evaluate_retrieval, retrieval_ranks
from vsemb.evaluation.text_curves import text_curve
from vsemb.evaluation.zero_shot import ZeroShotMetrics, evaluate_zero_shot

__all__ = [
    "CaptionMetrics",
    "Embedder",
    "EnergyMeasure",
    "EntailmentMetrics",
    "PairMetrics",
    "Reconstruction",
    "RetrievalMetrics",
    "ZeroShotMetrics",
    "evaluate_captions",
    "evaluate_entailment",
    "evaluate_pairs",
    "evaluate_retrieval",
    "evaluate_zero_shot",
    "reconstruct",
    "retrieval_ranks",
    "text_curve",
]
