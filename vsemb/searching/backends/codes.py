"""NumPy codes of one byte or one bit per dimension."""

from __future__ import annotations

import abc
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from vsemb.quantization import int8_codes, pack_bits
from vsemb.searching.backends.backend import Finder

# Number of rows encoded at a time.
_ROWS = 1 << 14
# Number of rows whose median is computed.
_SAMPLE = 10_000
_WORD = 64


class Codes(Finder):
    """Memory-mapped codes of the items, and the calibration that decodes them."""

    #: File name of the calibration.
    file: ClassVar[str]

    def __init__(self, codes: np.ndarray, calibration: np.ndarray) -> None:
        self.codes, self.calibration = codes, calibration

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    @abc.abstractmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the codes of vectors and their calibration."""

    @abc.abstractmethod
    def _scorer(self, queries: np.ndarray) -> Callable[[int, int], np.ndarray]:
        """Return the function that scores the items from one row to another: (queries, rows) float32."""

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        from vsemb.searching.scan import best_of_blocks

        return best_of_blocks(self._scorer(queries), len(self), len(queries), n, queries.shape[1])

    @classmethod
    def write(cls, vectors: np.ndarray, directory: Path) -> None:
        """Write the codes of vectors, see `vsemb.searching.backends.backend.SearchBackend.build`."""
        codes, calibration = cls._encoded(vectors)
        np.save(directory / "codes.npy", codes, allow_pickle=False)
        np.save(directory / cls.file, calibration, allow_pickle=False)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the codes in a directory."""
        codes = np.load(directory / "codes.npy", mmap_mode="r", allow_pickle=False)
        return cls(codes, np.load(directory / cls.file, allow_pickle=False))


class Int8Codes(Codes):
    """One byte per dimension, and one scale per vector as calibration.

    Codes are from `vsemb.quantization.int8_codes`. The scale of a vector is m / 127, where m is its largest magnitude.
    Queries are float32, so a score is the inner product with the rounded vector.
    """

    file = "scales.npy"

    @classmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scales = np.empty(vectors.shape, np.int8), np.empty(len(vectors), np.float32)
        for start in range(0, len(vectors), _ROWS):
            here = slice(start, start + _ROWS)
            codes[here], largest = int8_codes(vectors[here])
            scales[here] = largest / 127
        return codes, scales

    def _scorer(self, queries: np.ndarray) -> Callable[[int, int], np.ndarray]:
        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop].astype(np.float32)
            return (queries @ block.T) * self.calibration[start:stop]

        return score


class BinaryCodes(Codes):
    """One bit per dimension, and one threshold per dimension as calibration.

    A bit is 1 if the value is above the threshold. The score is minus the Hamming distance: the number of bits that
    differ from the query's. The threshold is 0 for a dimension with both signs, as under cosine similarity.
    Otherwise it is the median, because order-embeddings are non-negative.
    """

    file = "thresholds.npy"

    @classmethod
    def _encoded(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        thresholds = bit_thresholds(vectors)
        blocks = [vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS)]
        return np.concatenate([_words(pack_bits(block, thresholds)) for block in blocks]), thresholds

    def _scorer(self, queries: np.ndarray) -> Callable[[int, int], np.ndarray]:
        asked = _words(pack_bits(queries, self.calibration))

        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop]
            counts = [-_count_bits(block ^ query) for query in asked]
            return np.array(counts, np.float32).reshape(len(asked), len(block))

        return score


def sample(vectors: np.ndarray, most: int) -> np.ndarray:
    """Return a random sample of the rows, in their order: (at most `most`, dim) float32."""
    drawn = np.sort(np.random.default_rng(0).permutation(len(vectors))[:most])
    return np.ascontiguousarray(vectors[drawn], np.float32)


def bit_thresholds(vectors: np.ndarray) -> np.ndarray:
    """Return the threshold of each dimension, see `BinaryCodes`.

    Args:
        vectors: (items, dim) float.

    Returns:
        (dim,) float32.

    Example:

    >>> bit_thresholds(np.array([[-1.0, 1.0], [1.0, 2.0], [3.0, 6.0]])).tolist()
    [0.0, 2.0]
    """
    some = sample(vectors, _SAMPLE)
    both = (some.min(axis=0) < 0) & (some.max(axis=0) > 0)
    return np.where(both, 0, np.median(some, axis=0)).astype(np.float32)


def _words(packed: np.ndarray) -> np.ndarray:
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % (_WORD // 8))))
    return np.ascontiguousarray(padded).view(np.uint64)


_BITS_OF_16 = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16).sum(1, np.uint8)


def _count_bits(words: np.ndarray) -> np.ndarray:
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words).sum(axis=1, dtype=np.int32)
    return _BITS_OF_16[words.view(np.uint16)].sum(axis=1, dtype=np.int32)
