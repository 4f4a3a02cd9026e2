"""Backends that find candidates: the items that probably have the largest inner products with a query.

Candidates are then scored exactly, see `vsemb.searching.index`, so scores do not depend on the backend. The backends
are NumPy codes of one byte or one bit per dimension, FAISS and ScaNN (extra `index`), and Milvus (extra `milvus`).
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
    """Approximate index of vectors, which is fast to search or small; base of all backends.

    Made by `build`, then `open`.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     parameters = Int8Codes.build(np.eye(3, dtype=np.float32), Path(folder), {})
    ...     rows, scores = Int8Codes.open(Path(folder), parameters).search(np.array([[0.1, 0.9, 0.5]], np.float32), 2)
    >>> rows.tolist()
    [[1, 2]]
    """

    #: Names of the parameters that `build` takes.
    parameters: ClassVar[tuple[str, ...]] = ()
    #: Whether opening changes the files, so that they have no checksum.
    changes: ClassVar[bool] = False

    @classmethod  # noqa: B027
    def check(cls) -> None:
        """Check that the backend's library is installed.

        Raises:
            MissingExtraError: if it is not installed.
        """

    @classmethod
    @abc.abstractmethod
    def build(cls, vectors: np.ndarray, directory: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Write an index of vectors.

        Args:
            vectors: (items, dim) float32 or float16, finite, at least one item.
            directory: an empty directory.
            parameters: name in `parameters` -> value; others have their defaults.

        Returns:
            All parameters as JSON values, for `open`.

        Raises:
            VsembError: for a parameter out of range, or an error of the library.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, directory: Path, parameters: Mapping[str, Any]) -> Self:
        """Open an index.

        Args:
            directory: directory given to `build`.
            parameters: result of `build`.

        Raises:
            VsembError: if the index cannot be read.
        """

    @abc.abstractmethod
    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Find items with large inner products.

        Args:
            queries: (queries, dim) float32.
            n: number of items per query, from 1 to the number of items.

        Returns:
            rows: (queries, n) int64, in descending order of the backend's scores; -1 if fewer items are found.
            scores: (queries, n) float32, approximate scores of the backend; undefined for row -1. Higher is better.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    def close(self) -> None:  # noqa: B027
        """Close connections and processes."""

    @classmethod  # noqa: B027
    def discard(cls, parameters: Mapping[str, Any]) -> None:
        """Remove data that `build` wrote outside its directory, such as a collection of a cluster.

        Args:
            parameters: result of `build`.
        """

    @classmethod  # noqa: B027
    def replaced(cls, directory: Path) -> None:
        """Release old files, after a new index has replaced them.

        Args:
            directory: directory of the new index.
        """


def check_count(name: str, value: int, most: int, of: str) -> None:
    """Check that a parameter is from 1 to a maximum.

    Args:
        name: name of the parameter.
        value: its value.
        most: the maximum.
        of: plural noun for the things that are counted.

    Raises:
        InvalidArgumentError: for a value out of range.
    """
    if not 1 <= value <= most:
        raise invalid_argument(name, value, f"an integer from 1 to {most}, the number of {of}")


# Number of rows encoded at a time.
_ROWS = 1 << 14
# Number of rows whose median is computed.
_SAMPLE = 10_000
_WORD = 64


class _Codes(Backend):
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
    """One byte per dimension, and one scale per vector as calibration.

    The code of a vector x is round(127 x / m), its scale is m / 127, and m is its largest magnitude. Queries are
    float32, so a score is the inner product with the rounded vector.
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
            # A zero vector has zero codes.
            codes[here] = np.rint(block * (127 / np.where(largest > 0, largest, 1))[:, None])
        return codes, scales

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop].astype(np.float32)
            return (queries @ block.T) * self.calibration[start:stop]

        return best_of_blocks(score, len(self), len(queries), n, queries.shape[1])


class BinaryCodes(_Codes):
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

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        asked = _words(pack_bits(queries, self.calibration))

        def score(start: int, stop: int) -> np.ndarray:
            block = self.codes[start:stop]
            counts = [-_count_bits(block ^ query) for query in asked]
            return np.array(counts, np.float32).reshape(len(asked), len(block))

        return best_of_blocks(score, len(self), len(queries), n, queries.shape[1])


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


def pack_bits(vectors: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Pack one bit per dimension; padding bits are 0.

    Args:
        vectors: (items, dim) float.
        thresholds: (dim,) float32, see `bit_thresholds`.

    Returns:
        (items, ceil(dim / 8)) uint8.

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


_SCANN_ASSETS = "scann_assets.pbtxt"
# Minimum numbers of items for which hashing and a tree save time.
_HASHED, _TREE = 2_000, 20_000
# As recommended in ScaNN's documentation.
_BLOCK_DIMS, _THRESHOLD = 2, 0.2
_SCANN_TRAINING = 100_000
_PARALLEL = 32


def _scann() -> Any:
    with needs_extra("scann", "index"):
        from scann.scann_ops.py import scann_ops_pybind
    return scann_ops_pybind


class ScannIndex(Backend):
    """Hashed vectors in `leaves` partitions; a search reads `leaves_to_search` of them.

    By default, there are sqrt(items) partitions, and one in eight is searched. Below 20,000 items, there is one
    partition. Below 2,000 items, vectors are not hashed.
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
        # With one partition, ScaNN needs no tree.
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
            # `load_searcher` would unpickle a file of names if it exists.
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
        # Missing results have row 0 and score NaN.
        rows = np.where(np.isnan(scores), -1, found.astype(np.int64))
        return rows, np.asarray(scores, np.float32)


TOKEN = "VSEMB_MILVUS_TOKEN"
_MILVUS_FOLDER = "milvus.db"
# A server accepts messages of at most 64 MiB and returns at most 16,384 items per query.
_BATCH_BYTES, _MOST, _QUERIES = 4 << 20, 16_384, 64


def _milvus() -> Any:
    try:
        import milvus_lite  # noqa: F401
        import pymilvus
    except ImportError as error:
        raise missing_extra(error.name or "pymilvus", "milvus") from error
    return pymilvus


class MilvusCollection(Backend):
    """A Milvus collection: in a cluster with the parameter `uri`, otherwise in the index's directory (Milvus Lite).

    The token of a cluster is read from the environment variable VSEMB_MILVUS_TOKEN and is not stored.
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
        # A new name, so that an older index works until it is replaced.
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
    # Milvus Lite keeps connections by URI, so a folder always needs the same name.
    return os.path.abspath(directory / _MILVUS_FOLDER)


def _connect(where: str) -> Any:
    milvus = _milvus()
    # They log each error with a traceback and also raise it. gRPC's threads log calls that end with the process.
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


#: Backend by name; `int8` and `binary` are the dtypes of the backend `exact`.
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
#: Names of backends on the command line.
NAMES = ("exact", *(name for name in BACKENDS if name not in ("int8", "binary")))
