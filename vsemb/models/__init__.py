"""Models: `keras.Model` subclasses with their own losses and metrics."""

from vsemb.models.dual_encoder import DualEncoder
from vsemb.models.logit_scale import LogitScale

__all__ = [
    "DualEncoder",
    "LogitScale",
]
