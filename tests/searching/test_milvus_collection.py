"""Milvus: an embedded one ends with its process, and a server at a URI is written to and cleaned up."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("milvus_lite")

from vsemb.errors import DataError
from vsemb.searching import IndexSettings, IndexSource, read_index, write_index
from vsemb.searching.backends.milvus import TOKEN, MilvusCollection

SOURCE = IndexSource("run", "data", ("val",), "image", "cosine")


def vectors(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


def write(directory, count, settings):
    keys = [str(row) for row in range(count)]
    return write_index(directory, vectors(count), np.arange(count), keys, SOURCE, settings=settings)


@pytest.fixture
def server(tmp_path):
    """The URI of a Milvus server, as a cluster's would be, and its client."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread
    from pymilvus import MilvusClient

    started, database, port = start_server_in_thread(data_dir=str(tmp_path / "cluster"), host="127.0.0.1", port=0)
    client = MilvusClient(uri=f"http://127.0.0.1:{port}")
    yield f"http://127.0.0.1:{port}", client
    client.close()
    started.stop(grace=0).wait()
    database.close()


def test_a_server_by_uri(server, tmp_path, monkeypatch):
    uri, client = server
    monkeypatch.setenv(TOKEN, "root:hunter2")
    settings = IndexSettings("milvus", parameters={"uri": uri, "name": "my index"})
    index = write(tmp_path / "a", 30, settings)
    assert index.search(vectors(1, seed=1), 3)[0].tolist() == [
        np.argsort(-(vectors(30) @ vectors(1, seed=1)[0]))[:3].tolist()
    ]
    index.close()
    (first,) = client.list_collections()
    assert first.startswith("vsemb_my_index_")
    # The new one is there before the old one goes.
    write(tmp_path / "a", 20, settings).close()
    (second,) = client.list_collections()
    assert second != first
    assert not any(b"hunter2" in path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file())
    # A failure leaves the index and the server as they were.
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(MilvusCollection, "_fill", lambda self, *_: self.client.no_such or 1 / 0, raising=True)
        patch.setattr("pymilvus.MilvusClient.no_such", None, raising=False)
        write(tmp_path / "a", 10, settings)
    assert client.list_collections() == [second] and len(read_index(tmp_path / "a")) == 20
    client.drop_collection(second)
    with pytest.raises(DataError, match="collection .* is not at"):
        read_index(tmp_path / "a")


def test_nobody_at_the_uri(tmp_path):
    settings = IndexSettings("milvus", parameters={"uri": "http://127.0.0.1:9"})
    with pytest.raises(DataError, match=r"Milvus cannot .*http://127\.0\.0\.1:9"):
        write(tmp_path / "a", 5, settings)
    assert not any(tmp_path.iterdir())


def test_damage_is_one_error_and_nothing_is_logged_beside_it(tmp_path, monkeypatch):
    write(tmp_path / "a", 5, IndexSettings("milvus")).close()
    (schema,) = tmp_path.rglob("schema.json")
    schema.write_text("{")
    said = []
    for name in ("pymilvus.decorators", "milvus_lite.adapter.grpc.servicer"):
        monkeypatch.setattr(logging.getLogger(name), "handle", said.append)
    with pytest.raises(DataError, match=r"Milvus cannot open .*schema\.json' is not valid JSON[^.]*\.$"):
        read_index(tmp_path / "a")
    assert not said
    # Threads of the embedded server, too.
    for name in ("grpc._server", "milvus_lite.engine.collection"):
        assert not logging.getLogger(name).isEnabledFor(logging.ERROR), name


def test_an_embedded_one_stops_when_it_is_closed(tmp_path):
    # Not their number: a thread of an earlier test may end meanwhile.
    before = set(threading.enumerate())
    index = write(tmp_path / "a", 30, IndexSettings("milvus"))
    assert set(threading.enumerate()) - before
    # Written anew over the open one.
    again = write(tmp_path / "a", 20, IndexSettings("milvus"))
    assert len(again.backend) == 20
    assert again.search(vectors(1), 1)[0].tolist() == [[int(np.argmax(vectors(20) @ vectors(1)[0]))]]
    again.close()
    index.close()
    for thread in threading.enumerate():
        if "_serve" in thread.name:
            thread.join(30)
            assert not thread.is_alive()


_SEARCH = """
import sys
import numpy as np
from vsemb.errors import DataError
from vsemb.searching import read_index
try:
    read_index(sys.argv[1])
except DataError as error:
    print(error, flush=True)
sys.stdin.readline()
print(read_index(sys.argv[1]).search(np.ones((1, 8), np.float32), 2)[0].shape)
"""


@pytest.mark.slow
def test_one_process_at_a_time_and_one_that_forgets_to_close_ends(tmp_path):
    index = write(tmp_path / "a", 30, IndexSettings("milvus"))
    command = [sys.executable, "-c", _SEARCH, str(tmp_path / "a")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert "one process at a time" in process.stdout.readline()
            index.close()
            out, err = process.communicate("\n", timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0 and out == "(1, 2)\n" and "Traceback" not in err, err
