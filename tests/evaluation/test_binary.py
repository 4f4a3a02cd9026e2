"""Thresholds and rankings of labelled pairs: oracle, brute force, ties."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import oracle
from vsemb.errors import DataError
from vsemb.evaluation.binary import accuracy, average_precision, find_threshold, roc_auc


def some(seed: int, values: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of few values, so that many tie, with true ones smaller on the whole."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(2, size=30)
    return (generator.integers(values, size=30) + 2 * (1 - labels)) / 10, labels


def test_oracle() -> None:
    case = oracle("threshold_search")
    inputs, expected = case.inputs, case.expected
    threshold = find_threshold(inputs["val_errors"], inputs["val_labels"])
    assert threshold == expected["threshold"]
    assert accuracy(inputs["val_errors"], inputs["val_labels"], threshold) == expected["val_accuracy"]
    assert accuracy(inputs["test_errors"], inputs["test_labels"], threshold) == expected["test_accuracy"]
    leaky = find_threshold(inputs["test_errors"], inputs["test_labels"])
    assert leaky == expected["leaky_threshold_fitted_on_test"]
    np.testing.assert_allclose(
        accuracy(inputs["test_errors"], inputs["test_labels"], leaky), expected["leaky_test_accuracy"]
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("values", [2, 5, 100])
def test_threshold_is_the_smallest_of_the_best(seed: int, values: int) -> None:
    errors, labels = some(seed, values)
    candidates = [-np.inf, *sorted(set(errors))]
    right = [np.mean((errors <= t) == labels) for t in candidates]
    assert find_threshold(errors, labels) == candidates[int(np.argmax(right))]


def test_nothing_is_true() -> None:
    threshold = find_threshold(np.array([0.1, 0.2]), np.array([0, 0]))
    assert threshold == -np.inf
    assert accuracy(np.array([0.1, 0.2]), np.array([0, 0]), threshold) == 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("values", [2, 5, 100])
def test_area_is_the_share_of_ordered_pairs(seed: int, values: int) -> None:
    errors, labels = some(seed, values)
    pairs = [1.0 if t < f else 0.5 if t == f else 0.0 for t in errors[labels == 1] for f in errors[labels == 0]]
    np.testing.assert_allclose(roc_auc(errors, labels), np.mean(pairs), rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("values", [2, 5, 100])
def test_average_precision_is_the_mean_of_precisions(seed: int, values: int) -> None:
    errors, labels = some(seed, values)
    precisions = [np.mean(labels[errors <= e]) for e in errors[labels == 1]]
    np.testing.assert_allclose(average_precision(errors, labels), np.mean(precisions), rtol=1e-12)


def test_a_model_that_says_the_same_of_all_is_no_better_than_chance() -> None:
    errors, labels = np.zeros(4), np.array([1, 0, 0, 0])
    assert roc_auc(errors, labels) == 0.5
    assert average_precision(errors, labels) == 0.25


@pytest.mark.parametrize(
    ("errors", "labels"), [([], []), ([0.1], [1, 0]), ([0.1, np.nan], [1, 0]), ([0.1, 0.2], [1, 2])]
)
@pytest.mark.parametrize("function", [find_threshold, average_precision, roc_auc])
def test_bad_input(function, errors: list, labels: list) -> None:
    with pytest.raises(DataError):
        function(np.array(errors), np.array(labels))


def test_what_needs_both_kinds() -> None:
    with pytest.raises(DataError):
        roc_auc(np.array([0.1]), np.array([1]))
    with pytest.raises(DataError):
        average_precision(np.array([0.1]), np.array([0]))
