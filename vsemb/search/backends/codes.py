"""Embeddings in one byte or one bit a dimension, searched block by block with NumPy alone.

int8: a vector x is kept as round(127 x / m) with its own scale m / 127, m the largest of its magnitudes; the
query stays float32, so that the score is the inner product with the rounded vector.

binary: one bit says on which side of a threshold a dimension lies, and the score is minus the number of bits
that differ from the query's (Hamming distance). The threshold is 0 where a dimension takes both signs, as
those of cosines do, and else its median, since embeddings of an order have no negative entry.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.search.backends.base import Backend
from vsemb.search.scan import best_of_blocks

# Rows encoded at a time.
_ROWS = 1 << 14
# Rows that the median is taken of.
_SAMPLE = 10_000
_WORD = 64


class _Codes(Backend):
    """Codes of the items, mapped from the disk, and the calibration that tells what they mean."""

    #: Name of the file of the calibration.
    file: ClassVar[str]

    def __init__(self, codes: np.ndarray, calibration: np.ndarray) -> None:
        self.codes, self.calibration = codes, calibration

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    @abc.abstractmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of vectors and their calibration."""

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        codes, calibration = cls._encoded(vectors)
        np.save(directory / "codes.npy", codes, allow_pickle=False)
        np.save(directory / cls.file, calibration, allow_pickle=False)
        return {}

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        codes = np.load(directory / "codes.npy", mmap_mode="r", allow_pickle=False)
        return cls(codes, np.load(directory / cls.file, allow_pickle=False))


class Int8Codes(_Codes):
    """One byte a dimension and one scale a vector, the calibration."""

    file = "scales.npy"

    @classmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
        for start in range(0, len(vectors), _ROWS):
            here = slice(start, start + _ROWS)
            block = np.asarray(vectors[here], np.float32)
            largest = np.abs(block).max(axis=1)
            scales[here] = largest / 127
            # A vector of zeros stays one.
            codes[here] = np.rint(block * (127 / np.where(largest > 0, largest, 1))[:, None])
        return codes, scales

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop].astype(np.float32)
            return (queries @ block.T) * self.calibration[start:stop]

        return best_of_blocks(score, len(self), len(queries), n, queries.shape[1])


class BinaryCodes(_Codes):
    """One bit a dimension, by thresholds, the calibration."""

    file = "thresholds.npy"

    @classmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        thresholds = bit_thresholds(vectors)
        blocks = [vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS)]
        return np.concatenate([_words(pack_bits(block, thresholds)) for block in blocks]), thresholds

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        asked = _words(pack_bits(queries, self.calibration))

        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop]
            counts = [-_count_bits(block ^ query) for query in asked]
            return np.array(counts, np.float32).reshape(len(asked), len(block))

        return best_of_blocks(score, len(self), len(queries), n, queries.shape[1])


def sample(vectors: np.ndarray, most: int) -> np.ndarray:
    """Returns vectors drawn from all, in their order: (at most `most`, dim) float32."""
    drawn = np.sort(np.random.default_rng(0).permutation(len(vectors))[:most])
    return np.ascontiguousarray(vectors[drawn], np.float32)


def bit_thresholds(vectors: np.ndarray) -> np.ndarray:
    """Returns what each dimension is compared with: (dim,) float32, zero where it takes both signs.

    Args:
        vectors: (items, dim).
    """
    some = sample(vectors, _SAMPLE)
    both = (some.min(axis=0) < 0) & (some.max(axis=0) > 0)
    return np.where(both, 0, np.median(some, axis=0)).astype(np.float32)


def pack_bits(vectors: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Returns one bit a dimension: (items, ceil(dim / 8)) uint8, the last bits zero.

    Example:

    >>> pack_bits(np.array([[1.0, -1.0, 2.0]]), np.zeros(3)).tolist()
    [[160]]
    """
    return np.packbits(np.asarray(vectors, np.float32) > thresholds, axis=1)


def _words(packed: np.ndarray) -> np.ndarray:
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % (_WORD // 8))))
    return np.ascontiguousarray(padded).view(np.uint64)


_BITS_OF_16 = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1, np.uint8)


def _count_bits(words: np.ndarray) -> np.ndarray:
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words).sum(axis=1, dtype=np.int32)
    return _BITS_OF_16[words.view(np.uint16)].sum(axis=1, dtype=np.int32)
