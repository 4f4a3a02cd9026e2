"""Models: `keras.Model` subclasses with their own losses and metrics."""

from vsemb.models.dual_encoder import DualEncoder
from vsemb.models.in_batch import LogitScale

__all__ = ["DualEncoder", "LogitScale"]
