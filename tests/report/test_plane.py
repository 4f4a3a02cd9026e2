"""Principal components: against a case by hand, against the covariance, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.report.plane import principal_components


def test_by_hand() -> None:
    # Along (3, 4) / 5 the points lie at -5, 0 and 5; across it at 1, -2 and 1. Variances 50 and 6.
    along, across = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    embeddings = 7 + np.outer([-5, 0, 5], along) + np.outer([1, -2, 1], across)
    points, shares = principal_components(embeddings)
    np.testing.assert_allclose(points, [[-5, 1], [0, -2], [5, 1]], atol=1e-12)
    np.testing.assert_allclose(shares, [50 / 56, 6 / 56])


def test_variances_are_the_largest_of_the_covariance() -> None:
    embeddings = np.random.default_rng(2).normal(size=(40, 6)) * [1, 5, 2, 1, 3, 1]
    points, shares = principal_components(embeddings.astype(np.float32), 3)
    values = np.linalg.eigvalsh(np.cov(embeddings.T))[::-1]
    np.testing.assert_allclose(points.var(axis=0, ddof=1), values[:3], rtol=1e-5)
    np.testing.assert_allclose(shares, values[:3] / values.sum(), rtol=1e-5)
    mirrored, _ = principal_components(-embeddings.astype(np.float32), 3)
    np.testing.assert_allclose(mirrored, -points, atol=1e-5)


def test_equal_vectors_have_no_variance() -> None:
    points, shares = principal_components(np.ones((4, 3)))
    assert not points.any() and not shares.any()


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (3, 3), (5, 0), (9, 5)])
def test_refuses_more_directions_than_there_are(rows: int, count: int) -> None:
    with pytest.raises(InvalidArgumentError, match="`count`"):
        principal_components(np.random.default_rng(0).normal(size=(rows, 4)), count)


def test_refuses_what_is_not_finite() -> None:
    with pytest.raises(DataError, match="NaN"):
        principal_components(np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, 2.0]]))
