"""Training: callbacks for `fit`, selection on validation, exact resume."""

from vsemb.training.callbacks import MetricsLog, ProgressBar, SelectBest, StepCallbacks, averaged_weights
from vsemb.training.hub_bank import HubBankValidation
from vsemb.training.optimizers import FusedAdam
from vsemb.training.resume import TrainingState
from vsemb.training.validation import RetrievalValidation

__all__ = [
    "FusedAdam",
    "HubBankValidation",
    "MetricsLog",
    "ProgressBar",
    "RetrievalValidation",
    "SelectBest",
    "StepCallbacks",
    "TrainingState",
    "averaged_weights",
]
