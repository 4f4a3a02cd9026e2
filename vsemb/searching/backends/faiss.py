"""Indexes of FAISS (extra `index`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vsemb.errors import DataError, needs_extra
from vsemb.parts import Count
from vsemb.quantization import pack_bits
from vsemb.searching.backends.backend import FEW, Approximate, Finder, check_count
from vsemb.searching.backends.codes import bit_thresholds, sample

_FAISS_FILE = "faiss.index"
_FAISS_ROWS = 1 << 16
# Minimum and maximum number of vectors per list with which FAISS trains centroids.
_FEWEST_A_LIST, _MOST_A_LIST = 39, 256


def _faiss() -> Any:
    with needs_extra("faiss-cpu", "index"):
        import faiss
    return faiss


class FaissIndex(Finder):
    """An opened index of FAISS.

    Args:
        index: the index.
    """

    def __init__(self, index: Any) -> None:
        self.index = index

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(np.ascontiguousarray(queries, np.float32), n)
        return rows, scores


class FaissBits(FaissIndex):
    """An opened index of bits.

    Args:
        index: the index.
        thresholds: (dim,) float32, see `bit_thresholds`.
    """

    def __init__(self, index: Any, thresholds: np.ndarray) -> None:
        super().__init__(index)
        self.thresholds = thresholds

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = self.index.search(pack_bits(queries, self.thresholds), n)
        return rows, -distances.astype(np.float32)


@dataclass(frozen=True)
class Faiss(Approximate):
    """An index of FAISS.

    Class attributes:
        factory: argument of `faiss.index_factory`.
    """

    factory: ClassVar[str]

    def require_library(self) -> None:
        _faiss()

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        index, made = self._trained(vectors)
        for start in range(0, len(vectors), _FAISS_ROWS):
            index.add(np.ascontiguousarray(vectors[start : start + _FAISS_ROWS], np.float32))
        _faiss().write_index(index, str(directory / _FAISS_FILE))
        return made

    def _trained(self, vectors: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Return a trained, empty index, and the values for `open`."""
        faiss = _faiss()
        index = faiss.index_factory(vectors.shape[1], self.factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(sample(vectors, _FAISS_ROWS))
        return index, {}

    def open(self, directory: Path, made: Mapping[str, Any]) -> FaissIndex:
        faiss = _faiss()
        return FaissIndex(_read_faiss(lambda path: faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC), directory))


def _read_faiss(read: Callable[[str], Any], directory: Path) -> Any:
    path = directory / _FAISS_FILE
    try:
        return read(str(path))
    except RuntimeError as error:
        raise DataError(f"The index file {path} is damaged. Make the index again.") from error


@dataclass(frozen=True)
class FaissFlat(Faiss, kind="faiss-flat"):
    """Uncompressed vectors, all of them scored: the results of exact search, up to rounding."""

    factory = "Flat"


@dataclass(frozen=True)
class FaissInt8(Faiss, kind="faiss-int8"):
    """One byte per dimension, spread over the range of its values."""

    factory = "SQ8"


@dataclass(frozen=True)
class FaissIVF(Faiss, kind="faiss-ivf"):
    """Vectors in lists by nearest centroid; a search reads the nearest lists.

    Attributes:
        nlist: number of lists; default: 4 sqrt(items), at most one per 39 items.
        nprobe: lists that a search reads; default: one in eight, and all below 100,000 items.
    """

    nlist: Count | None = None
    nprobe: Count | None = None

    def _trained(self, vectors: np.ndarray) -> tuple[Any, dict[str, Any]]:
        faiss = _faiss()
        most = max(1, len(vectors) // _FEWEST_A_LIST)
        nlist = self.nlist or max(1, min(round(4 * len(vectors) ** 0.5), most))
        check_count("nlist", nlist, len(vectors), "items")
        nprobe = self.nprobe or (nlist if len(vectors) < FEW else max(8, nlist // 8))
        check_count("nprobe", nprobe, nlist, "lists")
        index = faiss.index_factory(vectors.shape[1], f"IVF{nlist},Flat", faiss.METRIC_INNER_PRODUCT)
        # FAISS would warn on stderr if the caller requests many lists for few vectors.
        index.cp.min_points_per_centroid = 1
        index.cp.max_points_per_centroid = _MOST_A_LIST
        index.train(sample(vectors, _MOST_A_LIST * nlist))
        return index, {"nlist": nlist, "nprobe": nprobe}

    def open(self, directory: Path, made: Mapping[str, Any]) -> FaissIndex:
        opened = super().open(directory, made)
        opened.index.nprobe = int(made["nprobe"])
        return opened


@dataclass(frozen=True)
class FaissBinary(Faiss, kind="faiss-binary"):
    """One bit per dimension, compared by Hamming distance."""

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        # The thresholds are those of `vsemb.searching.backends.codes.BinaryCodes`.
        thresholds = bit_thresholds(vectors)
        index = _faiss().IndexBinaryFlat(8 * -(-vectors.shape[1] // 8))
        for start in range(0, len(vectors), _FAISS_ROWS):
            index.add(pack_bits(vectors[start : start + _FAISS_ROWS], thresholds))
        _faiss().write_index_binary(index, str(directory / _FAISS_FILE))
        np.save(directory / "thresholds.npy", thresholds, allow_pickle=False)
        return {}

    def open(self, directory: Path, made: Mapping[str, Any]) -> FaissBits:
        thresholds = np.load(directory / "thresholds.npy", allow_pickle=False)
        return FaissBits(_read_faiss(_faiss().read_index_binary, directory), thresholds)
