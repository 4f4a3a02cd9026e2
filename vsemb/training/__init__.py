"""Training: callbacks for `fit`, selection on validation, exact resume."""

from vsemb.training.adam import Adam
from vsemb.training.averaging import averaged_weights
from vsemb.training.logs import MetricsLog, ProgressBar, StepCallbacks
from vsemb.training.momentum import RisingMomentumSGD
from vsemb.training.resume import TrainingState
from vsemb.training.selection import SelectBest
from vsemb.training.strategies import DistributionContext, open_distribution
from vsemb.training.validation import RetrievalValidation

__all__ = [
    "Adam",
    "DistributionContext",
    "MetricsLog",
    "ProgressBar",
    "RetrievalValidation",
    "RisingMomentumSGD",
    "SelectBest",
    "StepCallbacks",
    "TrainingState",
    "averaged_weights",
    "open_distribution",
]
