"""Metrics of labelled sentence pairs: two classes, entailed or not (Vendrov et al. 2016, section 5), or three."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import keras
import numpy as np

from vsemb.console import progress
from vsemb.errors import DataError
from vsemb.evaluation.binary import accuracy, average_precision, find_threshold, roc_auc
from vsemb.ops.tensorflow import tf
from vsemb.systems.entailment.data import CLASSES, EntailmentSplit
from vsemb.training.validation import Validation


@dataclass(frozen=True)
class PairMetrics:
    """Metrics of labelled pairs; shares and areas are in [0, 1].

    Attributes:
        pairs: number of pairs.
        logged: names of the metrics of a validation.
    """

    logged: ClassVar[tuple[str, ...]] = ("accuracy",)

    pairs: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an infinite threshold is null."""
        return asdict(self)

    def rows(self) -> dict[str, str]:
        """Return the metrics as text, by name."""
        raise NotImplementedError


@dataclass(frozen=True)
class EntailmentMetrics(PairMetrics):
    """Metrics of two classes, entailed or not.

    Attributes:
        entailed: number of pairs of class entailment.
        accuracy: share of pairs classified correctly as entailed or not.
        majority: accuracy of always predicting the more frequent class.
        average_precision: area under the precision-recall curve of entailment.
        roc_auc: area under the ROC curve.
        threshold: maximum energy of a pair that counts as entailed.
        class_accuracy: class -> share of its pairs classified correctly.
    """

    logged: ClassVar[tuple[str, ...]] = ("accuracy", "average_precision", "roc_auc")

    entailed: int
    accuracy: float
    majority: float
    average_precision: float
    roc_auc: float
    threshold: float
    class_accuracy: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "threshold": self.threshold if np.isfinite(self.threshold) else None}

    def rows(self) -> dict[str, str]:
        measured = {
            "accuracy": self.accuracy,
            "majority class": self.majority,
            "average precision": self.average_precision,
            "area under ROC": self.roc_auc,
        }
        # Other numbers are aligned with those before " %".
        threshold = {"threshold, from val": f"{self.threshold:.3g}  "}
        return {"entailed pairs": f"{self.entailed}  ", **_percent(measured, self.class_accuracy), **threshold}


@dataclass(frozen=True)
class ClassMetrics(PairMetrics):
    """Metrics of three classes.

    Attributes:
        accuracy: share of pairs whose class is found.
        majority: accuracy of always predicting the most frequent class.
        two_class_accuracy: accuracy with neutral and contradiction merged.
        class_accuracy: class -> share of its pairs whose class is found.
    """

    logged: ClassVar[tuple[str, ...]] = ("accuracy", "two_class_accuracy")

    accuracy: float
    majority: float
    two_class_accuracy: float
    class_accuracy: dict[str, float]

    def rows(self) -> dict[str, str]:
        measured = {
            "accuracy, three classes": self.accuracy,
            "majority class": self.majority,
            "accuracy, two classes": self.two_class_accuracy,
        }
        return _percent(measured, self.class_accuracy)


def _percent(shares: dict[str, float], of_classes: dict[str, float]) -> dict[str, str]:
    shares |= {f"accuracy on {name}": share for name, share in of_classes.items()}
    return {name: f"{100 * share:.1f} %" for name, share in shares.items()}


class PairMeasure:
    """Compute the outputs of a model for pairs in batches, with a function compiled once.

    Args:
        model: the model; later changes of its weights take effect.

    Example:

        energies = PairMeasure(model)(splits["val"])
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self._compiled: Any = model
        if keras.backend.backend() == "tensorflow":
            text = tf.TensorSpec((None, None), tf.int32)
            signature = [{"premise": text, "hypothesis": text}]
            self._compiled = tf.function(lambda inputs: model(inputs), signature, autograph=False)

    def __call__(self, split: EntailmentSplit, batch_size: int = 256) -> np.ndarray:
        """Return the outputs for a split's pairs: (pairs, ...) float32, such as energies (pairs,)."""
        outputs: np.ndarray | None = None
        # Sorted by length for less padding.
        order = np.lexsort((split.hypotheses.lengths, split.premises.lengths))
        with progress(total=len(order), desc=split.name, unit="pair", leave=False) as bar:
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                inputs = {
                    "premise": tf.constant(split.premises.padded(rows)),
                    "hypothesis": tf.constant(split.hypotheses.padded(rows)),
                }
                batch = keras.ops.convert_to_numpy(self._compiled(inputs))
                if outputs is None:
                    outputs = np.empty((len(split), *batch.shape[1:]), np.float32)
                outputs[rows] = batch
                bar.update(len(rows))
        assert outputs is not None  # `EntailmentData.encode` refuses splits without pairs.
        return outputs


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
        class_accuracy=_by_class(right, classes),
    )


def evaluate_classes(logits: np.ndarray, classes: np.ndarray) -> ClassMetrics:
    """Measure a classifier of pairs.

    Args:
        logits: (pairs, 3) float; the largest is the predicted class.
        classes: (pairs,) 0 entailment, 1 neutral, 2 contradiction.

    Raises:
        DataError: if a logit is NaN.

    Example: a contradiction is taken for neutral, which is right in two classes.

    >>> metrics = evaluate_classes(np.eye(3)[[0, 1, 1]], np.array([0, 1, 2]))
    >>> round(metrics.accuracy, 3), metrics.two_class_accuracy
    (0.667, 1.0)
    """
    if np.isnan(logits).any():
        raise DataError("The classifier's outputs must be numbers; got NaN. The model is broken; nothing was measured.")
    classes = np.asarray(classes)
    predicted = logits.argmax(axis=1)
    right = predicted == classes
    return ClassMetrics(
        pairs=len(classes),
        accuracy=float(right.mean()),
        majority=float(np.bincount(classes).max() / len(classes)),
        two_class_accuracy=float(((predicted == 0) == (classes == 0)).mean()),
        class_accuracy=_by_class(right, classes),
    )


def _by_class(right: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    return {CLASSES[number]: float(right[classes == number].mean()) for number in np.unique(classes)}


class PairValidation(Validation):
    """Callback that measures a split after every epoch and adds the metrics to the logs.

    Later callbacks read `val_accuracy` and the other metrics that `evaluate` returns, all in [0, 1]. Place this
    callback before them.

    Args:
        split: the validation split.
        evaluate: from outputs (pairs, ...) and classes (pairs,) to metrics, such as `evaluate_entailment`, which takes
            the split's own best threshold.

    Example:

        validation = PairValidation(splits["val"], evaluate_entailment)
        model.fit(batches.dataset(), epochs=10, callbacks=[validation])
    """

    measured_by = PairMeasure

    def __init__(self, split: EntailmentSplit, evaluate: Callable[[np.ndarray, np.ndarray], PairMetrics]) -> None:
        super().__init__()
        self.split = split
        self.evaluate = evaluate

    def measure(self) -> PairMetrics:
        """Measure the model with its current weights."""
        with self.measures() as measure:
            return self.evaluate(measure(self.split), self.split.classes)

    def shown(self, logs: dict[str, Any]) -> str:
        named = {name: value for name, value in logs.items() if name.startswith("val_")}
        return "  ".join(f"{name.replace('_', ' ')} {100 * value:.1f} %" for name, value in named.items())

    def metrics(self) -> dict[str, float]:
        measured = self.measure()
        return {f"val_{name}": getattr(measured, name) for name in measured.logged}
