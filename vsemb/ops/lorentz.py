"""Hyperbolic space in the Lorentz model, of curvature -1: distances and entailment cones (MERU, arXiv:2304.09172).

A point is given by its tangent vector at the root, the origin of the hyperboloid. The length of the vector is the
distance to the root. All functions take tangent vectors and compute in float32.

Distances and angles come from the two lengths r and s and the angle a between the vectors, with q = sin²(a / 2). The
textbook forms subtract numbers of nearly equal size, such as the two terms of the Lorentz inner product. These do not:

    distance d:        sinh²(d / 2) = sinh²((r - s) / 2) + sinh(r) sinh(s) q
    exterior angle e:  tan e = sinh(s) sin(a) / (sinh(s - r) - 2 cosh(r) sinh(s) q)
"""

from __future__ import annotations

import math
from typing import Any

from keras import ops

Tensor = Any
# Unit vectors, (..., dim), and distances to the root, (...); the direction of the root is 0.
_Points = tuple[Tensor, Tensor]

#: Largest distance to the root; longer tangent vectors count as this long, as in the authors' code.
MOST = math.asinh(2.0**15)
#: Distance from the root at which the aperture of a cone begins to shrink: K of the paper.
MIN_RADIUS = 0.1

# Smallest squared length that is divided by, so that the gradient at the root is finite.
_TINY = 1e-12
# Points nearer to the root are the root.
_AT_ROOT = 1.5e-6
# Smaller squares, of half a distance and of a sine, count as 0: square roots have no finite gradient there.
_SMALL, _TINIER = 1e-10, 1e-14
# Sines above it have the angle pi / 2, since the gradient at 1 is infinite.
_SINE = 1.0 - 1e-6


def exponential_map(tangent: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the coordinates of points on the hyperboloid.

    Args:
        tangent: (..., dim) float, tangent vectors at the root.

    Returns:
        space: (..., dim) float32.
        time: (...) float32, sqrt(1 + |space|²).

    Example: the point at distance 2 from the root.

    >>> space, time = exponential_map([[2.0, 0.0]])
    >>> [round(float(value), 3) for value in (space[0, 0], time[0])]
    [3.627, 3.762]
    """
    direction, radius = _polar(tangent)
    return direction * ops.expand_dims(ops.sinh(radius), -1), ops.cosh(radius)


def lorentz_distance(x: Tensor, y: Tensor) -> Tensor:
    """Compute the distance of each point of `x` to the point of `y` at the same position.

    Args:
        x: (..., dim) float, tangent vectors at the root.
        y: (..., dim) float; the shape must broadcast with `x`.

    Returns:
        (...) float32. Distances below 2e-5 are 0.

    Example: two points on one line through the root, on different sides.

    >>> round(float(lorentz_distance([1.0, 0.0], [-0.5, 0.0])), 4)
    1.5
    """
    (x, r), (y, s) = _polar(x), _polar(y)
    return _distance(r, s, _pairs(x, y))


def lorentz_distance_matrix(x: Tensor, y: Tensor) -> Tensor:
    """Compute the distance of every point of `x` to every point of `y`.

    The angles come from a matrix product, whose rounding limits the precision: the distance of a point to itself may be
    0.0005 sinh(r) at a distance r from the root.

    Args:
        x: (n, dim) float, tangent vectors at the root.
        y: (m, dim) float.

    Returns:
        (n, m) float32.

    Example:

    >>> [round(float(value), 3) for value in lorentz_distance_matrix([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]])[0]]
    [5.0, 1.0]
    """
    (x, r), (y, s) = _polar(x), _polar(y)
    return _distance(ops.expand_dims(r, 1), s, _products(x, y))


def half_aperture(tangent: Tensor, min_radius: float = MIN_RADIUS) -> Tensor:
    """Compute half the angle at the apex of the entailment cones of points.

    Args:
        tangent: (..., dim) float, tangent vectors at the root.
        min_radius: K of the paper. Cones of points near the root have an angle of pi / 2.

    Returns:
        (...) float32, in (0, pi / 2].

    Example: the farther a point is from the root, the more specific it is.

    >>> [round(float(half_aperture([length])), 3) for length in (0.1, 1.0, 3.0)]
    [1.571, 0.171, 0.02]
    """
    return _aperture(_polar(tangent)[1], min_radius)


def exterior_angle(x: Tensor, y: Tensor) -> Tensor:
    """Compute the exterior angle at x of the triangle of the root, x and y.

    It is 0 if y lies behind x, seen from the root. If x equals y, it is pi / 2, as in the authors' code. If x is the
    root, it is 0 for all y.

    Args:
        x: (..., dim) float, tangent vectors at the root, the corner of the angle.
        y: (..., dim) float; the shape must broadcast with `x`.

    Returns:
        (...) float32, in [0, pi].

    Example: a point beyond x, and a point between x and the root.

    >>> [round(float(exterior_angle([1.0, 0.0], [length, 0.0])), 3) for length in (2.0, 0.5)]
    [0.0, 3.142]
    """
    (x, r), (y, s) = _polar(x), _polar(y)
    return _exterior(r, s, _pairs(x, y))


def cone_violation(specific: Tensor, general: Tensor, min_radius: float = MIN_RADIUS) -> Tensor:
    """Compute how far a point lies outside the entailment cone of another.

    E(x, y) = max(0, exterior angle at y of x - half aperture of y). It is zero exactly if x lies in the cone of y. The
    cone of the root contains all points.

    Args:
        specific: (..., dim) float, x: tangent vectors of the points assumed to lie in a cone.
        general: (..., dim) float, y: apexes of the cones; the shape must broadcast with `specific`.
        min_radius: K of the paper.

    Returns:
        (...) float32, in radians.

    Example: the cone at distance 1 contains a point straight behind it, but not a point at a right angle.

    >>> [round(float(cone_violation(point, [1.0, 0.0])), 3) for point in ([2.0, 0.0], [0.0, 1.0])]
    [0.0, 2.396]
    """
    return ops.relu(exterior_angle(general, specific) - half_aperture(general, min_radius))


def cone_violation_matrix(specific: Tensor, general: Tensor, min_radius: float = MIN_RADIUS) -> Tensor:
    """Compute `cone_violation` of every point of `specific` with the cone of every point of `general`.

    The angles come from a matrix product, whose rounding limits their precision to about 0.0005.

    Args:
        specific: (n, dim) float, tangent vectors at the root.
        general: (m, dim) float.
        min_radius: K of the paper.

    Returns:
        (n, m) float32, in radians.

    Example: both points lie in the cone of the root.

    >>> cone_violation_matrix([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]]).numpy().tolist()
    [[0.0], [0.0]]
    """
    (x, s), (y, r) = _polar(specific), _polar(general)
    return ops.relu(_exterior(r, ops.expand_dims(s, 1), _products(x, y)) - _aperture(r, min_radius))


def _polar(tangent: Tensor) -> _Points:
    tangent = ops.cast(tangent, "float32")
    squared = ops.sum(ops.square(tangent), axis=-1)
    length = ops.sqrt(ops.maximum(squared, _TINY))
    return tangent / ops.expand_dims(length, -1), ops.minimum(length, MOST)


def _pairs(x: Tensor, y: Tensor) -> Tensor:
    """Return sin²(a / 2) of the angle between directions: a quarter of their squared distance."""
    return 0.25 * ops.sum(ops.square(x - y), axis=-1)


def _products(x: Tensor, y: Tensor) -> Tensor:
    cosines = ops.matmul(x, ops.transpose(y))
    return ops.clip(0.5 - 0.5 * cosines, 0.0, 1.0)


def _distance(r: Tensor, s: Tensor, q: Tensor) -> Tensor:
    squared = ops.square(ops.sinh(0.5 * (r - s))) + ops.sinh(r) * ops.sinh(s) * q
    apart = squared > _SMALL
    # The root of 1 takes the place of 0's, whose gradient would be NaN even where it is not used.
    return ops.where(apart, 2.0 * ops.arcsinh(ops.sqrt(ops.where(apart, squared, 1.0))), 0.0)


def _exterior(r: Tensor, s: Tensor, q: Tensor) -> Tensor:
    """Return the exterior angle at the point at distance r, of a point at distance s."""
    across = 2.0 * ops.sinh(s) * ops.sqrt(ops.maximum(q * (1.0 - q), _TINIER))
    outward = ops.sinh(s - r) - 2.0 * ops.cosh(r) * ops.sinh(s) * q
    apart = ops.square(across) + ops.square(outward) > _SMALL
    angle = ops.arctan2(ops.where(apart, across, 1.0), ops.where(apart, outward, 0.0))
    return ops.where(r > _AT_ROOT, angle, 0.0)


def _aperture(radius: Tensor, min_radius: float) -> Tensor:
    sine = 2.0 * min_radius / ops.sinh(radius)
    narrow = sine < _SINE
    return ops.where(narrow, ops.arcsin(ops.where(narrow, sine, 0.0)), 0.5 * math.pi)
