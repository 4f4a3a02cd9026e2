"""Vectors rounded for faster products, and the bound on the error of their inner products.

With the rounded vectors q~ and x~, Cauchy's inequality gives

    |q·x - q~·x~|  <=  |q - q~| |x| + |q~| |x - x~|

If two rounded scores differ by more than the bound, they decide a rank or a search. Otherwise exact scores decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.ops.tensorflow import tf

#: Unit roundoff: half the distance from 1 to the next larger number.
ROUNDOFF = {"bfloat16": 2.0**-8, "float32": 2.0**-24}
# Number of rows that are rounded at a time; they fit in a processor's caches.
_ROWS = 512
# Minimum length of a row whose squares do not underflow.
_SHORT = 1e-15


@dataclass(frozen=True)
class Rounding:
    """Largest change of items by rounding.

    Attributes:
        dtype: type of the rounded items.
        length: the largest length of an item.
        moved: the largest distance between an item and the rounded one.
    """

    dtype: str
    length: float
    moved: float


@dataclass(frozen=True, eq=False)
class RoundedRows:
    """Rows, and the change of each by rounding.

    Attributes:
        dtype: type of the rounded rows.
        exact: (n, dim) float32, the unrounded rows.
        lengths: (n,) lengths of the unrounded rows; infinite or NaN if the sum of a row's squares is.
        small_lengths: (n,) lengths of the rounded rows.
        moved: (n,) distance between each row and the rounded row.
    """

    dtype: str
    exact: np.ndarray
    lengths: np.ndarray
    small_lengths: np.ndarray
    moved: np.ndarray

    def rounded(self, rows: slice = slice(None)) -> tf.Tensor:
        """Return some rows, rounded; by default all."""
        return tf.cast(self.exact[rows], self.dtype)

    @property
    def largest(self) -> Rounding:
        """Largest length and largest change of all rows."""
        return Rounding(self.dtype, float(self.lengths.max()), float(self.moved.max()))

    def error(self, other: Rounding) -> np.ndarray:
        """Return the bound on the difference between rounded and float32 products with an item.

        Args:
            other: rounding of the items.

        Returns:
            (n,) float32. It does not include that the rounded products are rounded to the dtype again.
        """
        sums = self.exact.shape[1] * ROUNDOFF["float32"] * (self.lengths + self.small_lengths)
        # The factors above 1 cover that the lengths are float32 sums too.
        return 1.001 * (self.moved * other.length + self.small_lengths * other.moved + 1.01 * sums * other.length)


def round_rows(rows: np.ndarray, dtype: str) -> RoundedRows:
    """Measure the change of each row by rounding.

    Args:
        rows: (n, dim) float32, at least one.
        dtype: `"bfloat16"` or `"float32"`.
    """
    squares = []
    for start in range(0, len(rows), _ROWS):
        exact = rows[start : start + _ROWS]
        back = tf.cast(tf.cast(exact, dtype), tf.float32).numpy()
        with np.errstate(over="ignore", invalid="ignore"):  # Callers check that lengths are finite.
            squares.append([np.einsum("nd,nd->n", x, x) for x in (exact, back, exact - back)])
    lengths = np.sqrt(np.concatenate(squares, axis=1))
    short = lengths[0] < _SHORT
    if short.any():
        lengths[:, short] = np.abs(rows[short]).max(axis=1) * np.sqrt(rows.shape[1])
    return RoundedRows(dtype, rows, *lengths)


def within(sample: np.ndarray, measured: Rounding) -> bool:
    """Return whether the products of a sample of items are within the bound of the exact ones.

    The bound assumes sums in float32; not every build of TensorFlow sums products of bfloat16 in float32.

    Args:
        sample: (n, dim) float32, some of the items.
        measured: rounding of the items.
    """
    rows = round_rows(sample, measured.dtype)
    rounded = rows.rounded()
    scores = tf.cast(tf.matmul(rounded, rounded, transpose_b=True), tf.float32).numpy()
    exact = sample.astype(np.float64) @ sample.T.astype(np.float64)
    bound = rows.error(measured)[:, None] + ROUNDOFF[measured.dtype] * np.abs(scores)
    return bool((np.abs(scores - exact) <= bound).all())
