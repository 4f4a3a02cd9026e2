"""Collections of Milvus, in a cluster or in a folder (extra `milvus`)."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import logging
import os
import re
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from vsemb.console import say
from vsemb.errors import DataError, VsembError, invalid_argument, missing_extra, one_line
from vsemb.files import read_bytes, reading, require_contained
from vsemb.searching.backends.backend import Approximate, Finder

URI, TOKEN = "VSEMB_MILVUS_URI", "VSEMB_MILVUS_TOKEN"
_MILVUS_FOLDER, _MARK = "milvus.db", "mark"
# Of every collection of vsemb; the rest of the name is the id of its index.
_PREFIX = "vsemb_"
_ID = re.compile(r"[0-9a-f]{32}")
# A server accepts messages of at most 64 MiB and returns at most 16,384 items per query.
_BATCH_BYTES, _MOST, _QUERIES = 4 << 20, 16_384, 64


def _milvus() -> Any:
    try:
        import pymilvus
    except ImportError as error:
        raise missing_extra(error.name or "pymilvus", "milvus") from error
    # They log each error with a traceback and also raise it. gRPC's threads log calls that end with the process.
    _silence("pymilvus", "grpc")
    return pymilvus


def _lite() -> Any:
    try:
        import milvus_lite
    except ImportError as error:
        raise missing_extra(error.name or "milvus_lite", "milvus") from error
    _silence("milvus_lite")
    return milvus_lite


def _silence(*names: str) -> None:
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class Collection(Finder):
    """A collection of Milvus, anywhere."""

    @abc.abstractmethod
    def hits(self, queries: list[list[float]], n: int) -> Iterable[Sequence[Mapping[str, Any]]]:
        """Find at most n items per query.

        Args:
            queries: at most 64 vectors.
            n: number of items per query.

        Returns:
            `id` and `distance` of the items per query, in descending order of the inner product.
        """

    def search(self, queries: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        n = min(n, _MOST)
        rows = np.full((len(queries), n), -1, np.int64)
        scores = np.full((len(queries), n), -np.inf, np.float32)
        for start in range(0, len(queries), _QUERIES):
            found = self.hits(queries[start : start + _QUERIES].tolist(), n)
            for row, hits in enumerate(found, start):
                rows[row, : len(hits)] = [hit["id"] for hit in hits]
                scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        return rows, scores


class MilvusCollection(Collection):
    """A connection to a collection in a cluster.

    Args:
        where: address of the cluster.
        collection: name of the collection.
    """

    def __init__(self, where: str, collection: str) -> None:
        self.collection = collection
        self.client = _connect(where)

    def __len__(self) -> int:
        with _milvus_errors("count the items of", self.collection):
            return int(self.client.get_collection_stats(self.collection)["row_count"])

    def fill(self, vectors: np.ndarray) -> None:
        """Create the collection with the items as rows.

        Args:
            vectors: (items, dim) float32 or float16.
        """
        milvus = _milvus()
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", milvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", milvus.DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type="AUTOINDEX", metric_type="IP")
        self.client.create_collection(self.collection, schema=schema, index_params=index)
        for block in _blocks(vectors):
            self.client.insert(self.collection, block)
        self.client.flush(self.collection)

    def hits(self, queries: list[list[float]], n: int) -> Iterable[Sequence[Mapping[str, Any]]]:
        with _milvus_errors("search", self.collection):
            found: Iterable[Sequence[Mapping[str, Any]]] = self.client.search(
                self.collection,
                data=queries,
                limit=n,
                anns_field="vector",
                search_params={"metric_type": "IP"},
                consistency_level="Strong",
            )
            return found

    def close(self) -> None:
        self.client.close()


class LiteCollection(Collection):
    """A collection in a folder, opened by Milvus Lite in this process, without a server.

    Args:
        folder: the opened folder.
        collection: name of the collection.
    """

    def __init__(self, folder: LiteFolder, collection: str) -> None:
        self.folder: LiteFolder | None = folder
        self.collection = folder.database.get_collection(collection)
        self.collection.load()

    def __len__(self) -> int:
        with _lite_errors("count the items of", self.collection.name):
            return int(self.collection.num_entities)

    def hits(self, queries: list[list[float]], n: int) -> Iterable[Sequence[Mapping[str, Any]]]:
        with _lite_errors("search", self.collection.name):
            found: Iterable[Sequence[Mapping[str, Any]]] = self.collection.search(
                queries, n, "IP", anns_field="vector", output_fields=[]
            )
            return found

    def close(self) -> None:
        self.folder = None


class LiteFolder:
    """A folder that Milvus Lite has opened, with a lock on it, until the last reference to this object is gone.

    Args:
        path: absolute path of the folder.
    """

    _opened: ClassVar[weakref.WeakValueDictionary[str, LiteFolder]] = weakref.WeakValueDictionary()

    def __init__(self, path: str) -> None:
        self.database = _lite().MilvusLite(path)
        weakref.finalize(self, self.database.close)

    @classmethod
    def shared(cls, path: str) -> LiteFolder:
        """Return a folder that is open in this process, or open it."""
        return cls._opened.get(path) or cls._opened.setdefault(path, cls(path))

    @classmethod
    def forget(cls, path: str) -> None:
        """Let the next call of `shared` open a folder that has replaced another one."""
        cls._opened.pop(path, None)


def _blocks(vectors: np.ndarray) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a collection, in blocks of at most `_BATCH_BYTES`."""
    step = max(1, _BATCH_BYTES // (4 * vectors.shape[1]))
    for start in range(0, len(vectors), step):
        block = np.asarray(vectors[start : start + step], np.float32)
        yield [{"id": row, "vector": vector} for row, vector in enumerate(block.tolist(), start)]


@dataclass(frozen=True)
class Milvus(Approximate, kind="milvus"):
    """A collection of Milvus, in a cluster or inside the index (Milvus Lite).

    Neither the address of a cluster nor its token is stored: an index may come from others, and must not decide where
    the token is sent. For a search, set the environment variable VSEMB_MILVUS_URI to the address. The token is read
    from VSEMB_MILVUS_TOKEN.

    Attributes:
        uri: address of a cluster, http://HOST:PORT; default: inside the index.
    """

    uri: str | None = None

    unstored: ClassVar[tuple[str, ...]] = ("uri",)
    changes: ClassVar[bool] = True

    def check(self) -> None:
        if self.uri is not None:
            _check_uri("uri", self.uri)

    def require_library(self) -> None:
        if self.uri is None:
            _lite()
        else:
            _milvus()

    # An index stores the random id in the name of its collection. In a cluster, the id is a hash of a file beside the
    # index: its random content, and number and time of change of its inode, which the kernel sets. Copies, archives and
    # backups have other inodes, and renaming keeps them. So a collection is dropped only with the index that made it.

    def build(self, vectors: np.ndarray, directory: Path) -> dict[str, Any]:
        # A new id, so that an older index works until it is replaced.
        number = uuid.uuid4().hex
        # Only an address given for this index: the variable is for indexes that are there.
        if self.uri is None:
            made = {"id": number, "cluster": False}
            _write_folder(_folder(directory), _collection(made), vectors)
        else:
            (directory / _MARK).write_text(number)
            made = {"id": _marked(directory), "cluster": True}
            _write_cluster(self.uri, _collection(made), vectors)
        return made

    def open(self, directory: Path, made: Mapping[str, Any]) -> Collection:
        collection = _collection(made)
        if not made["cluster"]:
            return _open_folder(_folder(directory), collection)
        uri = self._cluster
        if uri is None:
            raise DataError(
                f"The index {directory.parent} is in a cluster of Milvus, and does not say where. Set {URI} to its "
                "address, http://HOST:PORT."
            )
        return _open_cluster(uri, collection)

    @property
    def _cluster(self) -> str | None:
        """The address of the cluster that the user named; None without one."""
        if self.uri is not None:
            return self.uri
        named = os.environ.get(URI)
        if named is not None:
            _check_uri(URI, named)
        return named

    @classmethod
    def owns(cls, directory: Path, made: Mapping[str, Any]) -> bool:
        try:
            return bool(made.get("cluster")) and made.get("id") == _marked(directory)
        except OSError:
            return False

    def discard(self, made: Mapping[str, Any], ours: bool) -> None:
        if not made.get("cluster"):
            return
        fix = "Drop it if no other index uses it."
        if not ours:
            say(f"The collection of the replaced index stays in Milvus; another directory made it. {fix}")
            return
        collection, uri = _collection(made), self._cluster
        if uri is None:
            say(f"The collection {collection} stays in Milvus, because {URI} does not name the cluster. {fix}")
            return
        try:
            _drop(uri, collection)
        except DataError as error:
            say(f"The collection {collection} stays. {error} {fix}")

    def replaced(self, directory: Path) -> None:
        LiteFolder.forget(_folder(directory))


def _collection(made: Mapping[str, Any]) -> str:
    """Return the name of an index's collection.

    Raises:
        ValueError: for another id than `build` makes, which could name a collection that is not of vsemb.
    """
    number = made["id"]
    if not isinstance(number, str) or not _ID.fullmatch(number):
        raise ValueError(f"the id of its collection must be 32 hexadecimal digits; got {one_line(number, 80)!r}")
    return f"{_PREFIX}{number}"


def _marked(directory: Path) -> str:
    """Return the id that belongs to the file of a directory, see `Milvus`."""
    mark = directory / _MARK
    content, status = read_bytes(mark), os.stat(mark)
    return hashlib.sha256(content + f" {status.st_ino} {status.st_ctime_ns}".encode()).hexdigest()[:32]


def _check_folder(folder: str) -> None:
    """Check that Milvus Lite, which writes to its folder and follows the paths in it, stays inside.

    Raises:
        DataError: for a missing folder, links that lead out of it, other files than regular ones, and descriptions that
            name paths outside or functions, which can call services.
    """
    if not os.path.isdir(folder):
        raise DataError(f"The index file {folder} cannot be read: no such folder. Make the index again.")
    require_contained(folder, "folder of Milvus")
    for path in sorted(Path(folder).rglob("*.json*")):
        with reading(path, "file of Milvus"):
            content = read_bytes(path)
        try:
            outside = _leads_out(json.loads(content))
        except (ValueError, RecursionError):
            continue  # Milvus says what is wrong with it, or reads its earlier version.
        if outside:
            raise DataError(f"{path} must describe a collection in its folder alone. Make the index again.")


def _leads_out(value: Any) -> bool:
    """Return whether a description of Milvus Lite names a path outside of its folder, an address or a function."""
    if isinstance(value, dict):
        return bool(value.get("functions")) or any(map(_leads_out, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_leads_out, value))
    parts = value.replace("\\", "/").split("/") if isinstance(value, str) else []
    return ".." in parts or parts[:1] == [""] and len(parts) > 1 or ":" in "".join(parts[:1]) and len(parts) > 1


def _check_uri(name: str, uri: str) -> None:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        shown = f"{parts.scheme}://{parts.hostname}" if parts.hostname else uri
        raise invalid_argument(
            name,
            shown,
            "http://HOST:PORT or https://HOST:PORT",
            f"A user and password go into the environment: {TOKEN}=USER:PASSWORD.",
        )


def _folder(directory: Path) -> str:
    return os.path.abspath(directory / _MILVUS_FOLDER)


def _write_folder(path: str, collection: str, vectors: np.ndarray) -> None:
    lite = _lite()
    fields = [
        lite.FieldSchema("id", lite.DataType.INT64, is_primary=True),
        lite.FieldSchema("vector", lite.DataType.FLOAT_VECTOR, dim=vectors.shape[1]),
    ]
    with _lite_errors("write to", path), lite.MilvusLite(path) as database:
        created = database.create_collection(collection, lite.CollectionSchema(fields))
        created.create_index("vector", {"index_type": "FLAT", "metric_type": "IP"})
        for block in _blocks(vectors):
            created.insert(block)
        created.flush()


def _open_folder(path: str, collection: str) -> LiteCollection:
    _check_folder(path)
    with _lite_errors("open", path):
        folder = LiteFolder.shared(path)
        if not folder.database.has_collection(collection):
            raise _no_collection(collection, path)
        return LiteCollection(folder, collection)


def _write_cluster(uri: str, collection: str, vectors: np.ndarray) -> None:
    try:
        with _milvus_errors("write to", uri), contextlib.closing(MilvusCollection(uri, collection)) as opened:
            opened.fill(vectors)
    except BaseException:
        with contextlib.suppress(DataError):
            _drop(uri, collection)
        raise


def _open_cluster(uri: str, collection: str) -> MilvusCollection:
    with _milvus_errors("open", uri):
        opened = MilvusCollection(uri, collection)
        try:
            if not opened.client.has_collection(collection):
                raise _no_collection(collection, uri)
            opened.client.load_collection(collection)
        except BaseException:
            opened.close()
            raise
    return opened


def _no_collection(collection: str, where: str) -> DataError:
    return DataError(f"The collection {collection} is not at {where}. Make the index again.")


def _connect(uri: str) -> Any:
    return _milvus().MilvusClient(uri=uri, token=os.environ.get(TOKEN, ""), timeout=10)


def _drop(uri: str, collection: str) -> None:
    with _milvus_errors("remove a collection of", uri), contextlib.closing(_connect(uri)) as client:
        if client.has_collection(collection):
            client.drop_collection(collection)


@contextlib.contextmanager
def _milvus_errors(what: str, where: str) -> Iterator[None]:
    milvus = _milvus()
    try:
        yield
    except milvus.MilvusException as error:
        raise _failure(what, where, getattr(error, "message", error)) from error


@contextlib.contextmanager
def _lite_errors(what: str, where: str) -> Iterator[None]:
    try:
        yield
    except VsembError:
        raise
    except _lite().DataDirLockedError as error:
        raise DataError(f"Milvus cannot {what} {where}. It is open to one process at a time.") from error
    except Exception as error:  # Damaged files raise exceptions of many libraries.
        raise _failure(what, where, error) from error


def _failure(what: str, where: str, reason: object) -> DataError:
    return DataError(f"Milvus cannot {what} {where}: {one_line(reason, 200)}.")
