"""Collections of Milvus, in a cluster or in a folder (extra `milvus`)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from vsemb.console import say
from vsemb.errors import DataError, invalid_argument, missing_extra, one_line
from vsemb.files import read_bytes, reading, require_contained
from vsemb.searching.backends.backend import Backend

URI, TOKEN = "VSEMB_MILVUS_URI", "VSEMB_MILVUS_TOKEN"
_MILVUS_FOLDER, _MARK = "milvus.db", "mark"
# Of every collection of vsemb; the rest of the name is the id of its index.
_PREFIX = "vsemb_"
_ID = re.compile(r"[0-9a-f]{32}")
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

    Neither the address of a cluster nor its token is stored: an index may come from others, and must not decide where
    the token is sent. An index in a cluster is opened with the environment variable VSEMB_MILVUS_URI. The token is read
    from VSEMB_MILVUS_TOKEN.

    An index stores the random id in the name of its collection. In a cluster, the id is a hash of a file beside the
    index: its random content, and number and time of change of its inode, which the kernel sets. Copies, archives and
    backups have other inodes, and renaming keeps them, so the collection is dropped with the index that made it alone.
    """

    parameters = ("uri",)
    unstored = ("uri",)
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
        # Only an address given for this index: the variable is for indexes that are there.
        uri = parameters.get("uri")
        if uri is not None:
            _check_uri(uri)
        # A new id, so that an older index works until it is replaced.
        complete: dict[str, Any] = {"id": uuid.uuid4().hex, "cluster": uri is not None}
        if uri is not None:
            (directory / _MARK).write_text(complete["id"])
            complete["id"] = _marked(directory)
        where, collection = uri or _folder(directory), _collection(complete)
        try:
            with _milvus_errors("write to", where), contextlib.closing(cls(where, collection)) as opened:
                opened._fill(vectors, "FLAT" if uri is None else "AUTOINDEX")
        except BaseException:
            if uri is not None:
                with contextlib.suppress(DataError):
                    _drop(uri, collection)
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
        collection = _collection(parameters)
        if parameters["cluster"]:
            where = _cluster(parameters)
            if where is None:
                raise DataError(
                    f"The index {directory.parent} is in a cluster of Milvus, and does not say where. Set {URI} to its "
                    "address, http://HOST:PORT."
                )
        else:
            where = _folder(directory)
            _check_folder(where)
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
    def owns(cls, directory: Path, parameters: Mapping[str, Any]) -> bool:
        try:
            return bool(parameters.get("cluster")) and parameters.get("id") == _marked(directory)
        except OSError:
            return False

    @classmethod
    def discard(cls, parameters: Mapping[str, Any], ours: bool) -> None:
        if not parameters.get("cluster"):
            return
        fix = "Drop it if no other index uses it."
        if not ours:
            say(f"The collection of the replaced index stays in Milvus; another directory made it. {fix}")
            return
        collection, uri = _collection(parameters), _cluster(parameters)
        if uri is None:
            say(f"The collection {collection} stays in Milvus, because {URI} does not name the cluster. {fix}")
            return
        try:
            _drop(uri, collection)
        except DataError as error:
            say(f"The collection {collection} stays. {error} {fix}")

    @classmethod
    def replaced(cls, directory: Path) -> None:
        _release(_folder(directory))


def _collection(parameters: Mapping[str, Any]) -> str:
    """Return the name of an index's collection.

    Raises:
        ValueError: for another id than `build` makes, which could name a collection that is not of vsemb.
    """
    number = parameters["id"]
    if not isinstance(number, str) or not _ID.fullmatch(number):
        raise ValueError(f"the id of its collection must be 32 hexadecimal digits; got {one_line(number, 80)!r}")
    return f"{_PREFIX}{number}"


def _marked(directory: Path) -> str:
    """Return the id that belongs to the file of a directory, see `MilvusCollection`."""
    mark = directory / _MARK
    content, found = read_bytes(mark), os.stat(mark)
    return hashlib.sha256(content + f" {found.st_ino} {found.st_ctime_ns}".encode()).hexdigest()[:32]


def _cluster(parameters: Mapping[str, Any]) -> str | None:
    """Return the address of the cluster that the user named; None without one."""
    uri = parameters.get("uri") or os.environ.get(URI)
    if uri is not None:
        _check_uri(uri)
    return uri


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


def _drop(uri: str, collection: str) -> None:
    with _milvus_errors("remove a collection of", uri), contextlib.closing(_connect(uri)) as client:
        if client.has_collection(collection):
            client.drop_collection(collection)


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
