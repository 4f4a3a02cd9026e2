"""Vectors rounded for faster products, and how far that can move an inner product.

With x~ a rounded vector, Cauchy's inequality bounds it:

    |q·x - q~·x~|  <=  |q - q~| |x| + |q~| |x - x~|

Ranks and searches are decided by rounded scores where these are further apart, and by exact ones elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vsemb.ops.tensorflow import tf

#: Unit roundoff: half the distance between neighbouring numbers of size 1.
ROUNDOFF = {"bfloat16": 2.0**-8, "float32": 2.0**-24}
# Rows that are rounded at a time: few enough for a processor's caches.
_ROWS = 512
# Squares of shorter rows may underflow.
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
    """Rows, and what rounding does to each.

    Attributes:
        dtype: what they are rounded to.
        exact: (n, dim) float32, as they were.
        lengths: (n,) of the rows as they were; infinite or NaN where a row's square is.
        small_lengths: (n,) of the rounded rows.
        moved: (n,) how far they are apart.
    """

    dtype: str
    exact: np.ndarray
    lengths: np.ndarray
    small_lengths: np.ndarray
    moved: np.ndarray

    def rounded(self, rows: slice = slice(None)) -> tf.Tensor:
        """Return some of the rows, or all of them, rounded."""
        return tf.cast(self.exact[rows], self.dtype)

    @property
    def largest(self) -> Rounding:
        """The most that rounding moves any row."""
        return Rounding(self.dtype, float(self.lengths.max()), float(self.moved.max()))

    def error(self, other: Rounding) -> np.ndarray:
        """Return how far a product with a rounded item, and a float32 product with the item, may be apart.

        Args:
            other: of the items.

        Returns:
            (n,) float32; that the products are rounded to the same dtype themselves is not in it.
        """
        sums = self.exact.shape[1] * ROUNDOFF["float32"] * (self.lengths + self.small_lengths)
        # The lengths are sums in float32 themselves.
        return 1.001 * (self.moved * other.length + self.small_lengths * other.moved + 1.01 * sums * other.length)


def round_rows(rows: np.ndarray, dtype: str) -> RoundedRows:
    """Measures how far rounding moves each row.

    Args:
        rows: (n, dim) float32, at least one.
        dtype: `"bfloat16"` or `"float32"`.
    """
    squares = []
    for start in range(0, len(rows), _ROWS):
        exact = rows[start : start + _ROWS]
        back = tf.cast(tf.cast(exact, dtype), tf.float32).numpy()
        with np.errstate(over="ignore", invalid="ignore"):  # What is not finite shows in the lengths.
            squares.append([np.einsum("nd,nd->n", each, each) for each in (exact, back, exact - back)])
    lengths = np.sqrt(np.concatenate(squares, axis=1))
    if (short := lengths[0] < _SHORT).any():
        lengths[:, short] = np.abs(rows[short]).max(axis=1) * np.sqrt(rows.shape[1])
    return RoundedRows(dtype, rows, *lengths)


def within(sample: np.ndarray, measured: Rounding) -> bool:
    """Tells whether products are as near to the exact ones as the bound says.

    Not every build of TensorFlow sums products of bfloat16 in float32, which the bound is for.

    Args:
        sample: (n, dim) float32, some of the items.
        measured: of the items.
    """
    rows = round_rows(sample, measured.dtype)
    rounded = rows.rounded()
    scores = tf.cast(tf.matmul(rounded, rounded, transpose_b=True), tf.float32).numpy()
    exact = sample.astype(np.float64) @ sample.T.astype(np.float64)
    bound = rows.error(measured)[:, None] + ROUNDOFF[measured.dtype] * np.abs(scores)
    return bool((np.abs(scores - exact) <= bound).all())
