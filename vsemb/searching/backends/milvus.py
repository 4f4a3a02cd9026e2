"""Collections of Milvus, in a cluster or in a folder (extra `milvus`)."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np

from vsemb.errors import DataError, invalid_argument, missing_extra, one_line
from vsemb.searching.backends.backend import Backend

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
