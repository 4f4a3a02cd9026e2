"""Rows of normal distributions with diagonal covariances: means, then logarithms of variances."""

from __future__ import annotations

import math
from typing import Any

from keras import ops

from vsemb.errors import invalid_argument

Tensor = Any


def split_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Split rows into means and logarithms of variances.

    Args:
        rows: (..., 2 dim) float.

    Returns:
        (..., dim) means and (..., dim) log variances.

    Raises:
        InvalidArgumentError: for an odd number of entries.

    Example:

    >>> means, log_variances = split_rows(ops.array([[0.6, 0.8, -2.0, -3.0]]))
    >>> log_variances.numpy().tolist()
    [[-2.0, -3.0]]
    """
    require_even(rows.shape[-1])
    half = rows.shape[-1] // 2
    return rows[..., :half], rows[..., half:]


def require_even(size: int) -> None:
    """Check that a row has as many means as variances.

    Args:
        size: number of entries of a row.

    Raises:
        InvalidArgumentError: for an odd number.
    """
    if size % 2:
        fix = "A row holds a mean and a log variance per dimension."
        raise invalid_argument("embedding_dim", size, "an even number with normal distributions", fix)


def total_variance(rows: Tensor) -> Tensor:
    """Return the sum of the variances of each row, its uncertainty (Chun 2024, arXiv:2305.18171).

    Args:
        rows: (..., 2 dim) float.

    Returns:
        (...) float.

    Example: the variances are 1 and 2.

    >>> round(float(total_variance(ops.array([0.6, 0.8, 0.0, math.log(2)]))), 4)
    3.0
    """
    return ops.sum(ops.exp(split_rows(rows)[1]), axis=-1)


def sampled_distance(first: Tensor, second: Tensor) -> Tensor:
    """Compute the closed-form sampled distance (CSD) of two distributions (Chun 2024, equation 1).

    It is the expected squared distance of a sample of one to a sample of the other:

        d = squared distance of the means + sum of all variances of both

    Args:
        first: (..., 2 dim) float.
        second: (..., 2 dim) float; the shape must broadcast with `first`.

    Returns:
        (...) float.

    Example: the squared distance of the means is 2, and the variances of each add up to 0.5.

    >>> variances = [math.log(0.25)] * 2
    >>> float(sampled_distance(ops.array([1.0, 0.0, *variances]), ops.array([0.0, 1.0, *variances])))
    3.0
    """
    apart = ops.sum(ops.square(split_rows(first)[0] - split_rows(second)[0]), axis=-1)
    return apart + total_variance(first) + total_variance(second)


def sampled_distance_matrix(first: Tensor, second: Tensor) -> Tensor:
    """Compute the CSD of all pairs by one matrix product, see `sampled_distance`.

    Args:
        first: (n, 2 dim) float, with means of about length 1. For long ones, rounding is larger.
        second: (m, 2 dim) float.

    Returns:
        (n, m) float.

    Example:

    >>> rows = ops.array([[1.0, 0.0, -50.0, -50.0], [0.0, 1.0, -50.0, -50.0]])
    >>> sampled_distance_matrix(rows, rows).numpy().tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    (means, _), (others, _) = split_rows(first), split_rows(second)
    of_first = ops.sum(ops.square(means), axis=-1) + total_variance(first)
    of_second = ops.sum(ops.square(others), axis=-1) + total_variance(second)
    products = ops.matmul(means, ops.transpose(others))
    return ops.expand_dims(of_first, 1) + ops.expand_dims(of_second, 0) - 2 * products


def divergence(rows: Tensor) -> Tensor:
    """Compute the Kullback-Leibler divergence from the standard normal distribution, as a mean over dimensions.

    Args:
        rows: (..., 2 dim) float.

    Returns:
        (...) float.

    Example: the divergence of the standard normal distribution itself is 0.

    >>> float(divergence(ops.zeros(4)))
    0.0
    """
    means, log_variances = split_rows(rows)
    return 0.5 * ops.mean(ops.square(means) + ops.exp(log_variances) - 1 - log_variances, axis=-1)


def with_start(rows: Tensor, variance: float) -> Tensor:
    """Add a constant to the log variances, so that 0 becomes an equal share of a total variance.

    Args:
        rows: (..., 2 dim) float, outputs of an encoder.
        variance: the total variance of a row whose log variances are 0, > 0.

    Returns:
        (..., 2 dim).

    Example: the second half becomes log(0.5 / 2).

    >>> with_start(ops.zeros((1, 4)), 0.5).numpy().round(3).tolist()
    [[0.0, 0.0, -1.3860000371932983, -1.3860000371932983]]
    """
    means, log_variances = split_rows(rows)
    start = math.log(variance / means.shape[-1])
    return ops.concatenate([means, log_variances + start], axis=-1)
