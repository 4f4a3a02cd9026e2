"""Measuring entailment on a validation split while `fit` runs."""

from __future__ import annotations

from typing import Any

import keras

from vsemb.systems.entailment.data import EntailmentSplit
from vsemb.systems.entailment.metrics import EnergyMeasure, EntailmentMetrics, evaluate_entailment
from vsemb.training.averaging import averaged_weights


class EntailmentValidation(keras.callbacks.Callback):
    """Measures entailment on a split after every epoch and adds it to the logs.

    Later callbacks see `val_accuracy` (at the split's own best threshold), `val_average_precision`,
    `val_roc_auc`, all in [0, 1]. Put this callback before those.

    Args:
        split: the validation split.

    Example:

        model.fit(batches.dataset(), epochs=10, callbacks=[EntailmentValidation(splits["val"])])
    """

    def __init__(self, split: EntailmentSplit) -> None:
        super().__init__()
        self.split = split
        self._measure: EnergyMeasure | None = None

    def measure(self) -> EntailmentMetrics:
        """Measures the model as it is now."""
        if self._measure is None or self._measure.model is not self.model:
            self._measure = EnergyMeasure(self.model)
        with averaged_weights(self.model):
            return evaluate_entailment(self._measure(self.split), self.split.classes)

    def shown(self, logs: dict[str, Any]) -> str:
        """Returns the metrics of an epoch as text."""
        precision = f"average precision {100 * logs['val_average_precision']:.1f} %"
        return f"val accuracy {100 * logs['val_accuracy']:.1f} %  {precision}"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        metrics = self.measure()
        logs = {} if logs is None else logs
        for name in ("accuracy", "average_precision", "roc_auc"):
            logs[f"val_{name}"] = getattr(metrics, name)
