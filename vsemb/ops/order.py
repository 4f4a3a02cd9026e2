"""Order violations: how far one point is from lying above another (Vendrov et al. 2016, equation 2).

The matrix of all pairs holds no matrix product, so it is a loop over slices of a few dimensions, compiled
into one pass over the result each. Two results take turns, one read and one written: a loop that reads and
writes the same buffer is not vectorized on CPUs, and eight times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from vsemb.ops.backend import compiled, in_graph

Tensor = Any

# Terms added up in registers before a result is written.
_UNROLLED = 8
# Rows and columns computed at a time: what the caches of a processor hold.
_ROWS, _COLUMNS = 1024, 1024
# Up to so many numbers, or for a single point, broadcasting is over before a compiler is awake; a graph is
# compiled once and then run many times.
_FEW, _FEW_IN_GRAPH = 1 << 22, 1 << 16


def order_violation(specific: Tensor, general: Tensor) -> Tensor:
    """Compute E(x, y) = ||max(0, y - x)||² for each row x of `specific` and y of `general`.

    E is zero exactly if y is above x in the order, that is, if no coordinate of y is larger. The origin is above all
    points.

    Args:
        specific: (n, dim) float, the points assumed to be lower in the order.
        general: (n, dim) float, the points assumed to be higher.

    Returns:
        (n,) float32.

    Example: the first coordinate may not exceed 3, and does by 1.

    >>> float(order_violation([[3.0, 2.0]], [[4.0, 1.0]])[0])
    1.0
    """
    over = ops.cast(general, "float32") - ops.cast(specific, "float32")
    return ops.sum(ops.square(ops.relu(over)), axis=-1)


def order_violation_matrix(specific: Tensor, general: Tensor) -> Tensor:
    """Returns E(x, y) of every row x of `specific` and every row y of `general`.

    Memory grows with n x m, never with n x m x dim, in the gradient too.

    Args:
        specific: (n, dim) float.
        general: (m, dim) float.

    Returns:
        (n, m) float32.

    Example: the origin is above everything, and only itself is above the origin.

    >>> points = ops.array([[0.0, 0.0], [1.0, 2.0]])
    >>> ops.convert_to_numpy(order_violation_matrix(points, points)).tolist()
    [[0.0, 5.0], [0.0, 0.0]]
    """
    specific, general = ops.cast(specific, "float32"), ops.cast(general, "float32")
    rows, columns, dim = specific.shape[0], general.shape[0], specific.shape[1]
    if rows is None or columns is None or dim is None:
        return _matrix(specific, general)
    few = _FEW_IN_GRAPH if in_graph() else _FEW
    if min(rows, columns) == 1 or rows * columns * dim <= few:
        return order_violation(ops.expand_dims(specific, 1), ops.expand_dims(general, 0))
    if rows > columns:
        # E(x, y) = E(-y, -x): the longer side belongs where processors compute many at once.
        return ops.transpose(_blocks(-general, -specific))
    return _blocks(specific, general)


def _blocks(specific: Tensor, general: Tensor) -> Tensor:
    columns = _even_blocks(general, _COLUMNS)
    # A row of blocks is put together before the next is computed, so that no more is held.
    rows = [ops.concatenate([_matrix(x, y) for y in columns], axis=1) for x in _even_blocks(specific, _ROWS)]
    return ops.concatenate(rows, axis=0)


def _even_blocks(points: Tensor, largest: int) -> list[Tensor]:
    """Cuts points into blocks of nearly one size, so that few sizes are compiled."""
    count = points.shape[0]
    size = -(-count // -(-count // largest))
    return [points[start : start + size] for start in range(0, count, size)]


@ops.custom_gradient
def _matrix(specific: Tensor, general: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, Tensor]]]:
    # Kept from recording the loops, whose own gradient would hold every slice.
    specific, general = ops.stop_gradient(specific), ops.stop_gradient(general)

    def gradient(*arguments: Any, upstream: Any = None) -> tuple[Tensor, Tensor]:
        upstream = arguments[0] if upstream is None else upstream
        (of_specific, _), (of_general, _) = _gradient(specific, general, upstream, ops.transpose(upstream))
        return -2.0 * of_specific, 2.0 * of_general

    return _forward(ops.transpose(specific), ops.transpose(general))[0], gradient


@compiled
def _forward(specific_columns: Tensor, general_columns: Tensor) -> tuple[Tensor, Tensor]:
    def term(x: Tensor, y: Tensor) -> Tensor:
        return ops.square(ops.relu(ops.expand_dims(y, 0) - ops.expand_dims(x, 1)))

    return _sum_of_slices(term, (_in_slices(specific_columns), _in_slices(general_columns)))


@compiled
def _gradient(
    specific: Tensor, general: Tensor, upstream: Tensor, upstream_columns: Tensor
) -> tuple[tuple[Tensor, Tensor], ...]:
    # dE/dy = 2 max(0, y - x) = -dE/dx. A sum over the columns, and one over the rows.
    def of_specific(weight: Tensor, y: Tensor) -> Tensor:
        return ops.expand_dims(weight, 1) * ops.relu(ops.expand_dims(y, 0) - specific)

    def of_general(weight: Tensor, x: Tensor) -> Tensor:
        return ops.expand_dims(weight, 1) * ops.relu(general - ops.expand_dims(x, 0))

    columns = (_in_slices(upstream_columns), _in_slices(general))
    rows = (_in_slices(upstream), _in_slices(specific))
    return _sum_of_slices(of_specific, columns), _sum_of_slices(of_general, rows)


def _in_slices(x: Tensor) -> Tensor:
    """Pads the first axis with zeros, which add nothing to any sum here, to a multiple of two slices."""
    return ops.pad(x, [[0, -ops.shape(x)[0] % (2 * _UNROLLED)], [0, 0]])


def _sum_of_slices(term: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Adds `term(a[k], b[k])` over k, the first axis of all operands.

    Returns:
        The sum; and the result it took turns with, which must leave the compiled function too, since what
        nobody uses is given no memory of its own.
    """

    def read(start: Tensor) -> list[Tensor]:
        return [ops.slice(a, [start, 0], [2 * _UNROLLED, ops.shape(a)[1]]) for a in operands]

    def added(total: Tensor, rows: list[Tensor], first: int) -> Tensor:
        part = term(*(row[first] for row in rows))
        for k in range(first + 1, first + _UNROLLED):
            part = part + term(*(row[k] for row in rows))
        return total + part

    def body(step: Tensor, totals: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rows = read(2 * _UNROLLED * step)
        other = added(totals[0], rows, 0)
        return added(other, rows, _UNROLLED), other

    nothing = ops.zeros_like(term(*(a[0] for a in operands)))
    steps = ops.shape(operands[0])[0] // (2 * _UNROLLED)
    return ops.fori_loop(0, steps, body, (nothing, nothing))
