"""Binary classification of pairs by an error: the best threshold, and metrics without a threshold."""

from __future__ import annotations

import numpy as np

from vsemb.errors import DataError


def find_threshold(errors: np.ndarray, labels: np.ndarray) -> float:
    """Find the threshold with the highest accuracy.

    A pair is classified as true if its error is at most the threshold. Fit the threshold on validation and apply it to
    test (Vendrov et al. 2016, sections 3.3 and 5.3); a threshold fitted on test would leak labels.

    Args:
        errors: (pairs,) float, small for pairs that the model considers true.
        labels: (pairs,) 1 for a true pair, 0 for a false one.

    Returns:
        The smallest error among the best thresholds; -inf if it is best to classify all pairs as false.

    Raises:
        DataError: for no pairs, different numbers of errors and labels, or errors that are not finite.

    Example:

    >>> find_threshold(np.array([0.0, 0.1, 0.35, 0.3, 0.9]), np.array([1, 1, 1, 0, 0]))
    0.1
    """
    errors, labels = _checked(errors, labels)
    order = np.argsort(errors, kind="stable")
    sorted_errors, true = errors[order], labels[order]
    # Number of correct pairs if the first i are classified as true: the true ones among them and the false ones after.
    true_before = np.concatenate([[0], np.cumsum(true)])
    false_after = np.concatenate([np.cumsum(~true[::-1])[::-1], [0]])
    right = true_before + false_after
    # A threshold cannot separate equal errors.
    ends = np.concatenate([[True], sorted_errors[1:] != sorted_errors[:-1], [True]])
    best = int(np.argmax(np.where(ends, right, -1)))
    return -np.inf if best == 0 else float(sorted_errors[best - 1])


def accuracy(errors: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    """Return the share of pairs that a threshold classifies correctly, in [0, 1].

    Args:
        errors: (pairs,) float.
        labels: (pairs,) 1 or 0.
        threshold: maximum error of a pair that is classified as true.

    Raises:
        DataError: as `find_threshold`.
    """
    errors, labels = _checked(errors, labels)
    return float(np.mean((errors <= threshold) == labels))


def average_precision(errors: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean, over true pairs, of the precision at their error; equal errors share one precision.

    Args:
        errors: (pairs,) float.
        labels: (pairs,) 1 or 0, at least one 1.

    Raises:
        DataError: as `find_threshold`, or if no pair is true.

    Example: the true pairs are found first and third, with precisions 1 and 2/3.

    >>> round(average_precision(np.array([0.1, 0.2, 0.3]), np.array([1, 0, 1])), 4)
    0.8333
    """
    errors, labels = _checked(errors, labels)
    if not labels.any():
        raise DataError("The labels of average precision must have a 1; got only 0.")
    order = np.argsort(errors, kind="stable")
    # Precision at an error counts all pairs with this error.
    last = np.searchsorted(errors[order], errors[order], side="right")
    true_pairs = np.cumsum(labels[order])[last - 1]
    return float(np.mean((true_pairs / last)[labels[order]]))


def roc_auc(errors: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the ROC curve.

    It is the probability that a true pair has a smaller error than a false one; ties count half.

    Args:
        errors: (pairs,) float.
        labels: (pairs,) 1 or 0, at least one of each.

    Raises:
        DataError: as `find_threshold`, or if all labels are equal.

    Example: of the two false pairs one is above the true one.

    >>> roc_auc(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0]))
    0.5
    """
    errors, labels = _checked(errors, labels)
    true, false = np.sort(errors[labels]), errors[~labels]
    if not len(true) or not len(false):
        raise DataError(f"The area under ROC must have true and false pairs; got {len(true)} and {len(false)}.")
    below = np.searchsorted(true, false, side="left")
    equal = np.searchsorted(true, false, side="right") - below
    return float(np.mean((below + 0.5 * equal) / len(true)))


def _checked(errors: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    errors, labels = np.asarray(errors, np.float64), np.asarray(labels)
    if errors.ndim != 1 or errors.shape != labels.shape or not len(errors):
        raise DataError(f"Pairs must have one error and one label each; got {errors.shape} and {labels.shape}.")
    if not np.isin(labels, (0, 1)).all():
        raise DataError("The labels of pairs must be 1 (true) or 0 (false); got others.")
    if not np.isfinite(errors).all():
        raise DataError("The errors of pairs must be finite; got NaN or infinity. Check the weights of the model.")
    return errors, labels.astype(bool)
