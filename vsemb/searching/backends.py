"""Backends: what finds the items whose inner product with a query is probably among the largest.

Their candidates are scored exactly afterwards (`vsemb.searching.index`), so that none of them decides a score. In this
order: the interface; embeddings in one byte or one bit per dimension, searched block by block with NumPy alone; FAISS
and ScaNN (extra `index`); Milvus (extra `milvus`).
"""

from __future__ import annotations

import abc
import contextlib
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import numpy as np

from vsemb.errors import DataError, invalid_argument, missing_extra, needs_extra, one_line
from vsemb.searching.scan import best_of_blocks


class Backend(abc.ABC):
    """Vectors in a form that is searched fast or held small."""

    #: Names of the parameters that `build` takes.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Whether the files change when they are opened, so that no checksum can be kept of them.
    changes: ClassVar[bool] = False

    @classmethod  # noqa: B027
    def check(cls) -> None:
        """Import what the backend needs.

        Raises:
            MissingExtraError: if that is not installed.
        """

    @classmethod
    @abc.abstractmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Write the vectors' files.

        Args:
            vectors: (items, dim) float32 or float16, finite, at least one item.
            directory: an empty one.
            parameters: values of `parameters` that differ from their defaults.

        Returns:
            All parameters, as JSON, which `open` is given.

        Raises:
            VsembError: for a parameter that is not allowed, or what the backend refuses.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        """Open what `build` wrote.

        Raises:
            VsembError: if it cannot be read.
        """

    @abc.abstractmethod
    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Find items with large inner products.

        Args:
            queries: (queries, dim) float32.
            n: items wanted, from 1 to as many as there are.

        Returns:
            rows: (queries, n) int64, probably the best first; -1 where fewer are found.
            scores: (queries, n) float32, the backend's own, higher is better; of no meaning where the row
                is -1.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many items there are."""

    def close(self) -> None:  # noqa: B027
        """Free what is not memory alone."""

    @classmethod  # noqa: B027
    def discard(cls, parameters: Mapping[str, Any]) -> None:
        """Remove what `build` made outside the directory, where it made such."""

    @classmethod  # noqa: B027
    def replaced(cls, directory: Path) -> None:
        """Lets go of files that were at `directory` and are others now."""


def check_count(name: str, value: int, most: int, of: str) -> None:
    """Check a parameter that is a count.

    Raises:
        InvalidArgumentError: for a value below 1 or above `most`, the number of `of`.
    """
    if not 1 <= value <= most:
        raise invalid_argument(name, value, f"an integer from 1 to {most}, the number of {of}")


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
        """Return the codes of vectors and their calibration."""

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
    """One byte per dimension and one scale per vector, the calibration.

    A vector x is kept as round(127 x / m) with its own scale m / 127, m the largest of its magnitudes. The query stays
    float32, so the score is the inner product with the rounded vector.
    """

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
    """One bit per dimension, by thresholds, the calibration.

    A bit says on which side of its threshold a dimension lies, and the score is minus the number of bits that differ
    from the query's (Hamming distance). The threshold is 0 where a dimension takes both signs, as with cosines,
    and else its median, since embeddings of an order have no negative entry.
    """

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
    """Return vectors drawn from all, in their order: (at most `most`, dim) float32."""
    drawn = np.sort(np.random.default_rng(0).permutation(len(vectors))[:most])
    return np.ascontiguousarray(vectors[drawn], np.float32)


def bit_thresholds(vectors: np.ndarray) -> np.ndarray:
    """Return what each dimension is compared with: (dim,) float32, zero where it takes both signs.

    Args:
        vectors: (items, dim).
    """
    some = sample(vectors, _SAMPLE)
    both = (some.min(axis=0) < 0) & (some.max(axis=0) > 0)
    return np.where(both, 0, np.median(some, axis=0)).astype(np.float32)


def pack_bits(vectors: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return one bit per dimension: (items, ceil(dim / 8)) uint8, the last bits zero.

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


_FAISS_FILE = "faiss.index"
_FAISS_ROWS = 1 << 16
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

    check = staticmethod(_faiss)

    @classmethod
    def _trained(cls, vectors: np.ndarray, parameters: dict[str, Any]) -> Any:
        """Return an empty index that takes the vectors; completes the parameters."""
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
    """One bit a dimension, compared by Hamming distance, as `BinaryCodes`."""

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


_SCANN_ASSETS = "scann_assets.pbtxt"
# Below, hashing saves nothing; below the second, a tree saves nothing.
_HASHED, _TREE = 2_000, 20_000
# As ScaNN's own guide advises.
_BLOCK_DIMS, _THRESHOLD = 2, 0.2
_SCANN_TRAINING = 100_000
_PARALLEL = 32


def _scann() -> Any:
    with needs_extra("scann", "index"):
        from scann.scann_ops.py import scann_ops_pybind
    return scann_ops_pybind


class ScannIndex(Backend):
    """Hashed vectors, above 20,000 in `leaves` partitions of which `leaves_to_search` are searched.

    By default there are sqrt(items) partitions and one in eight is searched. Below 2,000,
    vectors are kept as they are.
    """

    parameters = ("leaves", "leaves_to_search")

    def __init__(self, searcher: Any, count: int) -> None:
        self.searcher, self._count = searcher, count

    def __len__(self) -> int:
        return self._count

    check = staticmethod(_scann)

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        count = len(vectors)
        # One partition is no tree.
        leaves = int(parameters.get("leaves", round(count**0.5) if count >= _TREE else 1))
        check_count("leaves", leaves, count, "items")
        searched = int(parameters.get("leaves_to_search", max(1, leaves // 8)))
        check_count("leaves_to_search", searched, leaves, "leaves")
        builder = _scann().builder(np.ascontiguousarray(vectors, np.float32), 10, "dot_product")
        if leaves > 1:
            builder = builder.tree(leaves, searched, training_sample_size=min(count, _SCANN_TRAINING))
        if count >= _HASHED:
            builder = builder.score_ah(_BLOCK_DIMS, anisotropic_quantization_threshold=_THRESHOLD)
        else:
            builder = builder.score_brute_force()
        builder.build().serialize(str(directory), relative_path=True)
        return {"leaves": leaves, "leaves_to_search": searched, "count": count}

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        scann = _scann()
        try:
            assets = (directory / _SCANN_ASSETS).read_text(encoding="utf-8")
            # Not `load_searcher`, which unpickles a file of names where somebody put one.
            searcher = scann.ScannSearcher(scann.scann_pybind.ScannNumpy(str(directory), assets))
        except (OSError, RuntimeError, ValueError) as error:
            raise DataError(f"The index {directory} is damaged. Make the index again.") from error
        return cls(searcher, int(parameters["count"]))

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        queries = np.ascontiguousarray(queries, np.float32)
        if not len(queries):
            return np.zeros((0, n), np.int64), np.zeros((0, n), np.float32)
        search = self.searcher.search_batched
        if len(queries) >= _PARALLEL:
            search = self.searcher.search_batched_parallel
        found, scores = search(queries, final_num_neighbors=n, pre_reorder_num_neighbors=n)
        # Places that it has nothing for say row 0 and NaN.
        rows = np.where(np.isnan(scores), -1, found.astype(np.int64))
        return rows, np.asarray(scores, np.float32)


TOKEN = "VSEMB_MILVUS_TOKEN"
_MILVUS_FOLDER = "milvus.db"
# A server takes messages of at most 64 MiB and returns at most 16,384 items a query.
_BATCH_BYTES, _MOST, _QUERIES = 4 << 20, 16_384, 64


def _milvus() -> Any:
    try:
        import milvus_lite  # noqa: F401
        import pymilvus
    except ImportError as error:
        raise missing_extra(error.name or "pymilvus", "milvus") from error
    return pymilvus


class MilvusCollection(Backend):
    """A collection of vectors: with the parameter `uri` in a cluster, else in a folder of the index (Milvus Lite).

    The token of a cluster is read from the environment variable VSEMB_MILVUS_TOKEN and written nowhere.
    """

    parameters = ("uri", "name")
    changes = True

    def __init__(self, where: str, collection: str) -> None:
        self.where, self.collection = where, collection
        self.client = _connect(where)

    def __len__(self) -> int:
        with _milvus_errors("count the items of", self.collection):
            return int(self.client.get_collection_stats(self.collection)["row_count"])

    check = staticmethod(_milvus)

    @classmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        uri = parameters.get("uri")
        if uri is not None:
            _check_uri(uri)
        # A name of its own, so that an older index is whole until it is replaced.
        name = re.sub(r"\W+", "_", str(parameters.get("name", "items")), flags=re.ASCII)[:100]
        collection = f"vsemb_{name}_{uuid.uuid4().hex[:12]}"
        complete = {"uri": uri, "collection": collection}
        where = uri or _folder(directory)
        try:
            with _milvus_errors("write to", where), contextlib.closing(cls(where, collection)) as opened:
                opened._fill(vectors, "FLAT" if uri is None else "AUTOINDEX")
        except BaseException:
            with contextlib.suppress(DataError):
                cls.discard(complete)
            raise
        return complete

    def _fill(self, vectors: np.ndarray, index_type: str) -> None:
        milvus = _milvus()
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", milvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", milvus.DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type=index_type, metric_type="IP")
        self.client.create_collection(self.collection, schema=schema, index_params=index)
        step = max(1, _BATCH_BYTES // (4 * vectors.shape[1]))
        for start in range(0, len(vectors), step):
            block = np.asarray(vectors[start : start + step], np.float32)
            rows = [{"id": start + row, "vector": vector} for row, vector in enumerate(block)]
            self.client.insert(self.collection, rows)
        self.client.flush(self.collection)

    @classmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        where, collection = parameters.get("uri") or _folder(directory), parameters["collection"]
        if os.path.isabs(where) and not os.path.isdir(where):
            raise DataError(f"The index file {where} cannot be read: no such folder. Make the index again.")
        with _milvus_errors("open", where):
            opened = cls(where, collection)
            try:
                if not opened.client.has_collection(collection):
                    raise DataError(f"The collection {collection} is not at {where}. Make the index again.")
                opened.client.load_collection(collection)
            except BaseException:
                opened.close()
                raise
        return opened

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        n = min(n, _MOST)
        rows = np.full((len(queries), n), -1, np.int64)
        scores = np.full((len(queries), n), -np.inf, np.float32)
        with _milvus_errors("search", self.collection):
            for start in range(0, len(queries), _QUERIES):
                found = self.client.search(
                    self.collection,
                    data=queries[start : start + _QUERIES].tolist(),
                    limit=n,
                    anns_field="vector",
                    search_params={"metric_type": "IP"},
                    consistency_level="Strong",
                )
                for row, hits in enumerate(found, start):
                    rows[row, : len(hits)] = [hit["id"] for hit in hits]
                    scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return rows, scores

    def close(self) -> None:
        self.client.close()
        if os.path.isabs(self.where):
            _release(self.where)

    @classmethod
    def discard(cls, parameters: Mapping[str, Any]) -> None:
        uri, collection = parameters.get("uri"), parameters.get("collection")
        if uri is None or collection is None:
            return
        with _milvus_errors("remove a collection of", uri), contextlib.closing(_connect(uri)) as client:
            client.drop_collection(collection)

    @classmethod
    def replaced(cls, directory: Path) -> None:
        _release(_folder(directory))


def _check_uri(uri: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        shown = f"{parts.scheme}://{parts.hostname}" if parts.hostname else uri
        raise invalid_argument(
            "milvus-uri",
            shown,
            "http://HOST:PORT or https://HOST:PORT",
            f"A user and password go into the environment: {TOKEN}=USER:PASSWORD.",
        )


def _folder(directory: Path) -> str:
    # Its connections are kept by URI, so that a folder needs the same name throughout.
    return os.path.abspath(directory / _MILVUS_FOLDER)


def _connect(where: str) -> Any:
    milvus = _milvus()
    # They log every error with a traceback, and raise it too; gRPC's threads log calls that end with the process.
    for name in ("milvus_lite", "pymilvus", "grpc"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return milvus.MilvusClient(uri=where, token="" if os.path.isabs(where) else os.environ.get(TOKEN, ""), timeout=10)


def _release(folder: str) -> None:
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(folder)


@contextlib.contextmanager
def _milvus_errors(what: str, where: str) -> Iterator[None]:
    milvus = _milvus()
    try:
        yield
    except milvus.MilvusException as error:
        reason = one_line(getattr(error, "message", error), 200)
        fix = " It is open to one process at a time." if "Open local milvus failed" in reason else ""
        raise DataError(f"Milvus cannot {what} {where}: {reason}.{fix}") from error


#: Those of `exact` with the dtypes int8 and binary, and the others by their names.
BACKENDS: dict[str, type[Backend]] = {
    "int8": Int8Codes,
    "binary": BinaryCodes,
    "faiss-flat": FaissFlat,
    "faiss-ivf": FaissIVF,
    "faiss-int8": FaissInt8,
    "faiss-binary": FaissBinary,
    "scann": ScannIndex,
    "milvus": MilvusCollection,
}
#: What the command line calls a backend.
NAMES = ("exact", *(name for name in BACKENDS if name not in ("int8", "binary")))
