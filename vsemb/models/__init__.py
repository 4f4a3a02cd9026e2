"""Models: `keras.Model` subclasses with their own losses and metrics."""

from vsemb.models.dual_encoder import DualEncoder
from vsemb.models.entailment import EntailmentModel
from vsemb.models.hypernym import HypernymModel
from vsemb.models.logit_scale import LogitScale

__all__ = ["DualEncoder", "EntailmentModel", "HypernymModel", "LogitScale"]
