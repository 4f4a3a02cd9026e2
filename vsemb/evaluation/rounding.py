"""Vectors rounded for faster products, and how far that can move an inner product.

With x~ a rounded vector, Cauchy's inequality bounds it:

    |q·x - q~·x~|  <=  |q - q~| |x| + |q~| |x - x~|

Ranks and searches are decided by rounded scores where these are further apart, and by exact ones elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

#: Unit roundoff: half the distance between neighbouring numbers of size 1.
ROUNDOFF = {"bfloat16": 2.0**-8, "float32": 2.0**-24}


@dataclass(frozen=True)
class Rounding:
    """How far rounding moves the items.

    Attributes:
        dtype: what they are rounded to.
        length: the largest length of an item.
        moved: the largest distance between an item and the rounded one.
    """

    dtype: str
    length: float
    moved: float


def rounded_rows(rows: np.ndarray, measured: Rounding) -> tuple[tf.Tensor, np.ndarray]:
    """Rounds rows, and bounds how far their products with any rounded item can be from the exact ones.

    Args:
        rows: (n, dim) float32, finite.
        measured: of the items.

    Returns:
        (n, dim) of the dtype that the items are rounded to, and (n,) float32 distances; that the products are
        rounded to the same dtype themselves is not in them.
    """
    small = tf.cast(rows, measured.dtype)
    back = tf.cast(small, tf.float32).numpy()
    lengths = np.linalg.norm(back, axis=1)
    sums = rows.shape[1] * ROUNDOFF["float32"] * lengths * measured.length
    moved = np.linalg.norm(rows - back, axis=1)
    return small, moved * measured.length + lengths * measured.moved + sums


def within(sample: np.ndarray, measured: Rounding) -> bool:
    """Tells whether products are as near to the exact ones as the bound says.

    Not every build of TensorFlow sums products of bfloat16 in float32, which the bound is for.

    Args:
        sample: (n, dim) float32, some of the items.
        measured: of the items.
    """
    small, error = rounded_rows(sample, measured)
    scores = tf.cast(tf.matmul(small, small, transpose_b=True), tf.float32).numpy()
    exact = sample.astype(np.float64) @ sample.T.astype(np.float64)
    return bool((np.abs(scores - exact) <= error[:, None] + ROUNDOFF[measured.dtype] * np.abs(scores)).all())
