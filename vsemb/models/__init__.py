"""Models: `keras.Model` subclasses with their own losses and metrics."""

from vsemb.models.attentive_rnn import AttentiveRNN
from vsemb.models.dual_encoder import DualEncoder
from vsemb.models.entailment import EntailmentModel
from vsemb.models.hypernym import HypernymModel
from vsemb.models.log_bilinear import LogBilinear
from vsemb.models.logit_scale import LogitScale
from vsemb.models.multimodal_rnn import MultimodalRNN
from vsemb.models.next_word import NextWordModel
from vsemb.models.structure_content import Multiplicative, StructureContent

__all__ = [
    "AttentiveRNN",
    "DualEncoder",
    "EntailmentModel",
    "HypernymModel",
    "LogBilinear",
    "LogitScale",
    "MultimodalRNN",
    "Multiplicative",
    "NextWordModel",
    "StructureContent",
]
