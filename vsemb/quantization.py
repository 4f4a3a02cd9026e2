"""Embeddings of one byte or one bit per dimension, by rules that need no calibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from vsemb.errors import invalid_argument, unknown_name

if TYPE_CHECKING:
    from vsemb.similarities import Similarity

Precision = Literal["float32", "int8", "ubinary"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


def quantize(embeddings: np.ndarray, precision: Precision) -> np.ndarray:
    """Quantize embeddings whose inner products are cosines.

    Each row is quantized by itself, so rows that are embedded at different times can be compared.

    Args:
        embeddings: (rows, dim) float32.
        precision: `float32`; `int8`, see `int8_codes`; or `ubinary`, one bit per dimension, 1 for numbers above 0.

    Returns:
        (rows, dim) float32 or int8; (rows, dim / 8) uint8 for `ubinary`.

    Raises:
        InvalidArgumentError: for an unknown precision, and for `ubinary` if dim is not a multiple of 8.

    Example:

    >>> row = np.array([[0.8, -0.6, 0, 0, 0, 0, 0, 0]], np.float32)
    >>> quantize(row, "int8")[0, :2].tolist(), quantize(row, "ubinary").tolist()
    ([127, -95], [[128]])
    """
    check_precision(precision)
    return _QUANTIZED[precision](embeddings)


def dequantize(embeddings: np.ndarray) -> np.ndarray:
    """Return quantized embeddings as numbers, of unit length; zeros stay zeros.

    Args:
        embeddings: (..., dim) int8, or (..., dim / 8) uint8, from `quantize`; other dtypes are only cast.

    Returns:
        (..., dim) float32. A bit is 1 / sqrt(dim) or -1 / sqrt(dim), so the inner product of two rows of bits is
        1 - 2 h / dim. Here h is their Hamming distance, the number of bits that differ.

    Example:

    >>> dequantize(np.array([[0, -127]], np.int8)).tolist()
    [[0.0, -1.0]]
    """
    embeddings = np.asarray(embeddings)
    if embeddings.dtype == np.uint8:
        signs = np.unpackbits(embeddings, axis=-1).astype(np.float32)
        return (2 * signs - 1) / np.float32(signs.shape[-1] ** 0.5)
    numbers = embeddings.astype(np.float32, copy=False)
    if embeddings.dtype != np.int8:
        return numbers
    lengths = np.linalg.norm(numbers, axis=-1, keepdims=True)
    return numbers / np.where(lengths > 0, lengths, 1)


def is_quantized(embeddings: np.ndarray) -> bool:
    """Return whether embeddings have a dtype of `quantize`, other than float32."""
    return embeddings.dtype in (np.int8, np.uint8)


def check_precision(precision: str) -> None:
    """Check the name of a precision.

    Raises:
        InvalidArgumentError: for an unknown one.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)


def check_quantizable(precision: Precision, compared_by: Similarity | None, dim: int | None = None) -> None:
    """Check a precision for embeddings of a model, before they are computed.

    Args:
        precision: name of the precision.
        compared_by: similarity of the model; None if it is not known.
        dim: size of an embedding, if it is known.

    Raises:
        InvalidArgumentError: for an unknown precision, for another one than float32 if the similarity does not compare
            directions, and for `ubinary` if dim is not a multiple of 8.
    """
    check_precision(precision)
    if precision == "float32":
        return
    if compared_by is None or not compared_by.compares_directions:
        allowed = f"float32 for a model with the similarity {getattr(compared_by, 'kind', None)!r}"
        raise invalid_argument("precision", precision, allowed, "Only cosine similarity has int8 and ubinary.")
    if precision == "ubinary" and dim is not None:
        _require_whole_bytes(dim)


def int8_codes(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round vectors to one byte per dimension.

    The code of a vector x is round(127 x / m), where m is its largest magnitude. Codes have the direction of x, up to
    rounding, so their cosines are about the cosines of the vectors.

    Args:
        vectors: (rows, dim) float.

    Returns:
        codes: (rows, dim) int8; zeros for a zero vector.
        largest: (rows,) float32, the m of each row.

    Example:

    >>> codes, largest = int8_codes(np.array([[0.5, -0.25]]))
    >>> codes.tolist(), largest.tolist()
    ([[127, -64]], [0.5])
    """
    vectors = np.asarray(vectors, np.float32)
    largest = np.abs(vectors).max(axis=1)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))[:, None]).astype(np.int8), largest


def pack_bits(vectors: np.ndarray, thresholds: np.ndarray | float) -> np.ndarray:
    """Pack one bit per dimension, 1 for numbers above the threshold; padding bits are 0.

    Args:
        vectors: (rows, dim) float.
        thresholds: (dim,) float32, or one number.

    Returns:
        (rows, ceil(dim / 8)) uint8.

    Example:

    >>> pack_bits(np.array([[1.0, -1.0, 2.0]]), np.zeros(3)).tolist()
    [[160]]
    """
    return np.packbits(np.asarray(vectors, np.float32) > thresholds, axis=1)


def _require_whole_bytes(dim: int) -> None:
    if dim % 8:
        allowed = f"float32 or int8 for embeddings of {dim} numbers"
        raise invalid_argument("precision", "ubinary", allowed, "Bytes have eight bits: use int8.")


def _bits(embeddings: np.ndarray) -> np.ndarray:
    _require_whole_bytes(embeddings.shape[1])
    return pack_bits(embeddings, 0.0)


_QUANTIZED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float32": lambda embeddings: embeddings,
    "int8": lambda embeddings: int8_codes(embeddings)[0],
    "ubinary": _bits,
}
