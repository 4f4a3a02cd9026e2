"""Indexes of FAISS (extra `index`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.errors import DataError, needs_extra
from vsemb.searching.backends.backend import Backend, check_count
from vsemb.searching.backends.codes import bit_thresholds, pack_bits, sample

_FAISS_FILE = "faiss.index"
_FAISS_ROWS = 1 << 16
# Minimum and maximum number of vectors per list with which FAISS trains centroids.
_FEWEST_A_LIST, _MOST_A_LIST = 39, 256


def _faiss() -> Any:
    with needs_extra("faiss-cpu", "index"):
        import faiss
    return faiss


class _Faiss(Backend):
    #: Argument of `faiss.index_factory`.
    factory: ClassVar[str]

    def __init__(self, index: Any) -> None:
        self.index = index

    def __len__(self) -> int:
        return int(self.index.ntotal)

    check = staticmethod(_faiss)

    @classmethod
    def _trained(cls, vectors: np.ndarray, parameters: dict[str, Any]) -> Any:
        """Return a trained, empty index; adds default values to `parameters`."""
        faiss = _faiss()
        index = faiss.index_factory(vectors.shape[1], cls.factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(sample(vectors, _FAISS_ROWS))
        return index

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        complete = dict(parameters)
        index = cls._trained(vectors, complete)
        for start in range(0, len(vectors), _FAISS_ROWS):
            index.add(np.ascontiguousarray(vectors[start : start + _FAISS_ROWS], np.float32))
        _faiss().write_index(index, str(directory / _FAISS_FILE))
        return complete

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        faiss = _faiss()
        return cls(_read_faiss(lambda path: faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC), directory))

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(np.ascontiguousarray(queries, np.float32), n)
        return rows, scores


def _read_faiss(read: Callable[[str], Any], directory: Path) -> Any:
    path = directory / _FAISS_FILE
    try:
        return read(str(path))
    except RuntimeError as error:
        raise DataError(f"The index file {path} is damaged. Make the index again.") from error


class FaissFlat(_Faiss):
    """Uncompressed vectors, all of them scored: the results of exact search, up to rounding."""

    factory = "Flat"


class FaissInt8(_Faiss):
    """One byte per dimension, spread over the range of its values."""

    factory = "SQ8"


class FaissIVF(_Faiss):
    """Vectors in `nlist` lists by nearest centroid; a search reads the `nprobe` nearest lists.

    By default, there are 4 sqrt(items) lists, at most one per 39 items. One list in eight is searched, at least 8.
    """

    parameters = ("nlist", "nprobe")

    @classmethod
    def _trained(cls, vectors: np.ndarray, parameters: dict[str, Any]) -> Any:
        faiss = _faiss()
        most = max(1, len(vectors) // _FEWEST_A_LIST)
        nlist = parameters.setdefault("nlist", max(1, min(round(4 * len(vectors) ** 0.5), most)))
        check_count("nlist", nlist, len(vectors), "items")
        nprobe = parameters.setdefault("nprobe", min(nlist, max(8, nlist // 8)))
        check_count("nprobe", nprobe, nlist, "lists")
        index = faiss.index_factory(vectors.shape[1], f"IVF{nlist},Flat", faiss.METRIC_INNER_PRODUCT)
        # FAISS would warn on stderr if the caller requests many lists for few vectors.
        index.cp.min_points_per_centroid = 1
        index.cp.max_points_per_centroid = _MOST_A_LIST
        index.train(sample(vectors, _MOST_A_LIST * nlist))
        return index

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        opened = super().open(directory, parameters)
        opened.index.nprobe = int(parameters["nprobe"])
        return opened


class FaissBinary(_Faiss):
    """One bit per dimension, compared by Hamming distance, as in `BinaryCodes`."""

    def __init__(self, index: Any, thresholds: np.ndarray) -> None:
        super().__init__(index)
        self.thresholds = thresholds

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        thresholds = bit_thresholds(vectors)
        index = _faiss().IndexBinaryFlat(8 * -(-vectors.shape[1] // 8))
        for start in range(0, len(vectors), _FAISS_ROWS):
            index.add(pack_bits(vectors[start : start + _FAISS_ROWS], thresholds))
        _faiss().write_index_binary(index, str(directory / _FAISS_FILE))
        np.save(directory / "thresholds.npy", thresholds, allow_pickle=False)
        return {}

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        thresholds = np.load(directory / "thresholds.npy", allow_pickle=False)
        return cls(_read_faiss(_faiss().read_index_binary, directory), thresholds)

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = self.index.search(pack_bits(queries, self.thresholds), n)
        return rows, -distances.astype(np.float32)
