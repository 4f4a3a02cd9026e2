"""Composition and abstraction: what they are in an order. That they work is measured with the recipes."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import InvalidArgumentError
from vsemb.ops.order import order_violation_matrix
from vsemb.search import abstract, compose

A, B, C = np.array([3.0, 1, 0]), np.array([1.0, 2, 0]), np.array([0.0, 0, 5])


def test_by_hand():
    assert compose(A, B).tolist() == [3, 2, 0] and abstract(A, B).tolist() == [1, 1, 0]
    assert compose(A, B, C).tolist() == [3, 2, 5] and abstract(A, B, C).tolist() == [0, 0, 0]
    assert compose(np.stack([A, C]), np.stack([B, B])).tolist() == [[3, 2, 0], [1, 2, 5]]
    assert compose(A, B).dtype == np.float32 and A.tolist() == [3, 1, 0]


def test_what_lies_below_the_composition_lies_below_both_and_the_reverse():
    # Whole numbers, so that violations of zero are exact and common: (6 / 9)³, 30 %.
    points = np.random.default_rng(0).integers(0, 3, (400, 3)).astype(np.float32)
    a, b = points[:40, None], points[40:80, None]
    below = np.asarray(order_violation_matrix(points, points)) == 0  # [x, y]: x lies below y
    for one, other, i, j in zip(a, b, range(40), range(40, 80), strict=True):
        composed = np.asarray(order_violation_matrix(points, compose(one, other)))[:, 0] == 0
        assert composed.tolist() == (below[:, i] & below[:, j]).tolist()
        abstracted = np.asarray(order_violation_matrix(abstract(one, other), points))[0] == 0
        assert abstracted.tolist() == (below[i] & below[j]).tolist()
    assert below.mean() == pytest.approx(0.3, abs=0.05)


def test_what_is_refused():
    for operation in (compose, abstract):
        for given in ((), (A,), (A, B[:2]), (A, B[None])):
            with pytest.raises(InvalidArgumentError, match="two or more of one shape"):
                operation(*given)
