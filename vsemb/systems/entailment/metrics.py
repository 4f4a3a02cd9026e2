"""Entailment as two classes: entailed or not (Vendrov et al. 2016, section 5)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np

from vsemb.console import progress
from vsemb.evaluation.binary import accuracy, average_precision, find_threshold, roc_auc
from vsemb.ops.tensorflow import tf
from vsemb.systems.entailment.data import CLASSES, EntailmentSplit
from vsemb.systems.entailment.model import EntailmentModel
from vsemb.training.validation import Validation


@dataclass(frozen=True)
class EntailmentMetrics:
    """Metrics of labelled pairs; shares and areas are in [0, 1].

    Attributes:
        pairs: number of pairs.
        entailed: number of pairs of class entailment.
        accuracy: share of pairs classified correctly as entailed or not.
        majority: accuracy of always predicting the more frequent class.
        average_precision: area under the precision-recall curve of entailment.
        roc_auc: area under the ROC curve.
        threshold: maximum energy of a pair that counts as entailed.
        class_accuracy: class -> share of its pairs classified correctly.
    """

    pairs: int
    entailed: int
    accuracy: float
    majority: float
    average_precision: float
    roc_auc: float
    threshold: float
    class_accuracy: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an infinite threshold is null."""
        return {**asdict(self), "threshold": self.threshold if np.isfinite(self.threshold) else None}


class EnergyMeasure:
    """Compute energies of pairs in batches, with a function compiled once.

    Args:
        model: the model; later changes of its weights take effect.

    Example:

        energies = EnergyMeasure(model)(splits["val"])
    """

    def __init__(self, model: EntailmentModel) -> None:
        self.model = model
        self._compiled: Any = model
        if keras.backend.backend() == "tensorflow":
            text = tf.TensorSpec((None, None), tf.int32)
            signature = [{"premise": text, "hypothesis": text}]
            self._compiled = tf.function(lambda inputs: model(inputs), signature, autograph=False)

    def __call__(self, split: EntailmentSplit, batch_size: int = 256) -> np.ndarray:
        """Return the energies of a split's pairs, (pairs,) float32."""
        energies = np.empty(len(split), np.float32)
        # Sorted by length for less padding.
        order = np.lexsort((split.hypotheses.lengths, split.premises.lengths))
        with progress(total=len(order), desc=split.name, unit="pair", leave=False) as bar:
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                inputs = {
                    "premise": tf.constant(split.premises.padded(rows)),
                    "hypothesis": tf.constant(split.hypotheses.padded(rows)),
                }
                energies[rows] = keras.ops.convert_to_numpy(self._compiled(inputs))
                bar.update(len(rows))
        return energies


def evaluate_entailment(energies: np.ndarray, classes: np.ndarray, threshold: float | None = None) -> EntailmentMetrics:
    """Measure energies of labelled pairs.

    Args:
        energies: (pairs,) float, small for entailment.
        classes: (pairs,) 0 entailment, 1 neutral, 2 contradiction.
        threshold: maximum energy of an entailed pair, found on validation; None selects the best for these pairs,
            which is valid for the validation split only.

    Raises:
        DataError: if an energy is NaN, or the pairs do not have both classes.

    Example: one of the two entailed pairs is above the threshold.

    >>> metrics = evaluate_entailment(np.array([0.1, 0.4, 0.5, 0.9]), np.array([0, 0, 1, 2]), threshold=0.3)
    >>> metrics.accuracy, metrics.majority, metrics.roc_auc
    (0.75, 0.5, 1.0)
    """
    labels = (np.asarray(classes) == 0).astype(np.int32)
    if threshold is None:
        threshold = find_threshold(energies, labels)
    right = (energies <= threshold) == labels
    entailed = int(labels.sum())
    return EntailmentMetrics(
        pairs=len(labels),
        entailed=entailed,
        accuracy=accuracy(energies, labels, threshold),
        majority=max(entailed, len(labels) - entailed) / len(labels),
        average_precision=average_precision(energies, labels),
        roc_auc=roc_auc(energies, labels),
        threshold=float(threshold),
        class_accuracy={
            name: float(right[classes == number].mean())
            for number, name in enumerate(CLASSES)
            if (classes == number).any()
        },
    )


class EntailmentValidation(Validation):
    """Callback that measures entailment on a split after every epoch and adds the metrics to the logs.

    Later callbacks read `val_accuracy` (at the split's own best threshold), `val_average_precision` and `val_roc_auc`,
    all in [0, 1]. Place this callback before them.

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
        """Measure the model with its current weights."""
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
