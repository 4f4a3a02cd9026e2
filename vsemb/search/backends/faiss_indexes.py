"""FAISS: flat, inverted lists, one byte and one bit a dimension (extra `index`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.errors import DataError, needs_extra
from vsemb.search.backends.base import Backend, check_count
from vsemb.search.backends.codes import bit_thresholds, pack_bits, sample

_FILE = "faiss.index"
_ROWS = 1 << 16
# FAISS wants so many vectors to train a list of its own with, and uses no more than the larger number.
_FEWEST_A_LIST, _MOST_A_LIST = 39, 256


def _faiss() -> Any:
    with needs_extra("faiss-cpu", "index"):
        import faiss
    return faiss


class _Faiss(Backend):
    #: What `faiss.index_factory` makes.
    factory: ClassVar[str]

    def __init__(self, index: Any) -> None:
        self.index = index

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @classmethod
    def check(cls) -> None:
        _faiss()

    @classmethod
    def _trained(cls, vectors: np.ndarray, parameters: dict[str, Any]) -> Any:
        """Returns an empty index that takes the vectors; completes the parameters."""
        faiss = _faiss()
        index = faiss.index_factory(vectors.shape[1], cls.factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(sample(vectors, _ROWS))
        return index

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        complete = dict(parameters)
        index = cls._trained(vectors, complete)
        for start in range(0, len(vectors), _ROWS):
            index.add(np.ascontiguousarray(vectors[start : start + _ROWS], np.float32))
        _faiss().write_index(index, str(directory / _FILE))
        return complete

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        faiss = _faiss()
        return cls(_read(lambda path: faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC), directory))

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = self.index.search(np.ascontiguousarray(queries, np.float32), n)
        return rows, scores


def _read(read: Callable[[str], Any], directory: Path) -> Any:
    path = directory / _FILE
    try:
        return read(str(path))
    except RuntimeError as error:
        raise DataError(f"The index file {path} is damaged. Make the index again.") from error


class FaissFlat(_Faiss):
    """All vectors as they are: as exact as vsemb's own search, up to rounding."""

    factory = "Flat"


class FaissInt8(_Faiss):
    """One byte a dimension, between the least and the largest value that the dimension takes."""

    factory = "SQ8"


class FaissIVF(_Faiss):
    """Vectors in lists by the nearest of `nlist` centroids, of which the `nprobe` nearest are searched.

    By default there are 4 sqrt(items) lists, fewer where items are few, and one in eight is searched.
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
        # It warns of few vectors on stderr, and they are few where the caller asks for many lists.
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
    """One bit a dimension, compared by Hamming distance; see `vsemb.search.backends.codes` for the bits."""

    def __init__(self, index: Any, thresholds: np.ndarray) -> None:
        super().__init__(index)
        self.thresholds = thresholds

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        thresholds = bit_thresholds(vectors)
        index = _faiss().IndexBinaryFlat(8 * -(-vectors.shape[1] // 8))
        for start in range(0, len(vectors), _ROWS):
            index.add(pack_bits(vectors[start : start + _ROWS], thresholds))
        _faiss().write_index_binary(index, str(directory / _FILE))
        np.save(directory / "thresholds.npy", thresholds, allow_pickle=False)
        return {}

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        thresholds = np.load(directory / "thresholds.npy", allow_pickle=False)
        return cls(_read(_faiss().read_index_binary, directory), thresholds)

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        distances, rows = self.index.search(pack_bits(queries, self.thresholds), n)
        return rows, -distances.astype(np.float32)
