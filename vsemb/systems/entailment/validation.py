"""Measuring entailment on a validation split while `fit` runs."""

from __future__ import annotations

from typing import Any

from vsemb.systems.entailment.data import EntailmentSplit
from vsemb.systems.entailment.metrics import EnergyMeasure, EntailmentMetrics, evaluate_entailment
from vsemb.training.validation import Validation


class EntailmentValidation(Validation):
    """Measures entailment on a split after every epoch and adds it to the logs.

    Later callbacks see `val_accuracy` (at the split's own best threshold), `val_average_precision`,
    `val_roc_auc`, all in [0, 1]. Put this callback before those.

    Args:
        split: the validation split.

    Example:

        model.fit(batches.dataset(), epochs=10, callbacks=[EntailmentValidation(splits["val"])])
    """

    measured_by = EnergyMeasure

    def __init__(self, split: EntailmentSplit) -> None:
        super().__init__()
        self.split = split

    def measure(self) -> EntailmentMetrics:
        """Measures the model as it is now."""
        with self.measures() as measure:
            return evaluate_entailment(measure(self.split), self.split.classes)

    def shown(self, logs: dict[str, Any]) -> str:
        precision = f"average precision {100 * logs['val_average_precision']:.1f} %"
        return f"val accuracy {100 * logs['val_accuracy']:.1f} %  {precision}"

    def metrics(self) -> dict[str, float]:
        found = self.measure()
        return {
            "val_accuracy": found.accuracy,
            "val_average_precision": found.average_precision,
            "val_roc_auc": found.roc_auc,
        }
