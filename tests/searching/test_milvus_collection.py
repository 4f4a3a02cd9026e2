"""Milvus: an embedded one ends with its process, and a real server at a URI is written to and cleaned up."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("milvus_lite")

import milvus_lite

from vsemb.errors import DataError
from vsemb.searching.backends.milvus import TOKEN, URI, Milvus, MilvusCollection
from vsemb.searching.index import IndexSource, StaleIndexError
from vsemb.searching.storage import read_index, stored_backend, write_index

SOURCE = IndexSource("run", "data", ("val",), "image", "cosine")


def vectors(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


def write(directory, count, backend):
    keys = [str(row) for row in range(count)]
    return write_index(directory, vectors(count), np.arange(count), keys, SOURCE, backend=backend)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    """The URI of a server of Milvus, which a wheel brings."""
    milvus = pytest.importorskip("milvus", reason="the package milvus is not installed")
    started = milvus.MilvusServer()
    started.set_base_dir(str(tmp_path_factory.mktemp("standalone")))
    started.start()
    yield f"http://127.0.0.1:{started.listen_port}"
    started.stop()
    started.cleanup()


@pytest.fixture
def server(standalone):
    """The URI of a server without collections, and its client."""
    from pymilvus import MilvusClient

    client = MilvusClient(uri=standalone)
    yield standalone, client
    for name in client.list_collections():
        client.drop_collection(name)
    client.close()


@pytest.mark.slow
def test_a_server_by_uri(server, tmp_path, monkeypatch):
    uri, client = server
    monkeypatch.setenv(TOKEN, "root:hunter2")
    backend = Milvus(uri=uri)
    index = write(tmp_path / "a", 30, backend)
    assert index.search(vectors(1, seed=1), 3)[0].tolist() == [
        np.argsort(-(vectors(30) @ vectors(1, seed=1)[0]))[:3].tolist()
    ]
    index.close()
    (first,) = client.list_collections()
    assert first.startswith("vsemb_")
    # The new one is there before the old one goes.
    write(tmp_path / "a", 20, backend).close()
    (second,) = client.list_collections()
    assert second != first
    content = b"".join(path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert b"hunter2" not in content and uri.encode() not in content
    # The address comes from the user, each time.
    with pytest.raises(DataError, match=URI):
        read_index(tmp_path / "a")
    monkeypatch.setenv(URI, uri)
    # A failure leaves the index and the server as they were.
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(MilvusCollection, "fill", lambda self, *_: self.client.no_such or 1 / 0, raising=True)
        patch.setattr("pymilvus.MilvusClient.no_such", None, raising=False)
        write(tmp_path / "a", 10, backend)
    assert client.list_collections() == [second] and len(read_index(tmp_path / "a")) == 20
    client.drop_collection(second)
    with pytest.raises(DataError, match="collection .* is not at"):
        read_index(tmp_path / "a")


@pytest.mark.slow
def test_a_copy_leaves_the_collection_of_its_original(server, tmp_path, monkeypatch, capsys):
    uri, client = server
    monkeypatch.setenv(URI, uri)
    cluster = Milvus(uri=uri)
    write(tmp_path / "a", 30, cluster).close()
    write(tmp_path / "other", 10, cluster).close()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    write(tmp_path / "copy", 20, cluster).close()
    assert "stays in Milvus" in capsys.readouterr().err
    assert len(read_index(tmp_path / "a")) == 30 and len(client.list_collections()) == 3
    # A manifest that names the collection of another index, or any other, drops neither.
    client.create_collection("customers", dimension=8)
    manifest, other = (tmp_path / name / "manifest.json" for name in ("copy", "other"))
    mark = (tmp_path / "other" / "backend" / "mark").read_bytes()
    for backend in (json.loads(other.read_text())["backend"], {"cluster": True, "id": "customers"}):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"backend": backend}))
        (tmp_path / "copy" / "backend" / "mark").write_bytes(mark)
        write(tmp_path / "copy", 20, cluster).close()
    assert client.has_collection("customers") and len(read_index(tmp_path / "other")) == 10
    # A moved one takes its collection with it.
    before = len(client.list_collections())
    (tmp_path / "a").rename(tmp_path / "moved")
    write(tmp_path / "moved", 20, cluster).close()
    assert len(client.list_collections()) == before


def test_a_manifest_sends_the_token_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, "root:hunter2")
    write(tmp_path / "a", 5, Milvus()).close()
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = manifest["settings"] | {"parameters": {"uri": uri}}
        strange = [
            {"settings": settings},
            {"backend": manifest["backend"] | {"uri": uri}},
            {"backend": {"uri": uri, "collection": "vsemb_items_0123456789ab"}},
            {"backend": {"uri": uri, "cluster": True, "id": "0" * 32}},
        ]
        for changed in strange:
            path.write_text(json.dumps(manifest | changed))
            with pytest.raises(StaleIndexError, match="uri"):
                read_index(tmp_path / "a")
            assert stored_backend(tmp_path / "a").uri is None
        write(tmp_path / "a", 6, stored_backend(tmp_path / "a")).close()
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("where", ["link", "data", "functions"])
def test_an_embedded_one_stays_in_its_folder(where, tmp_path):
    write(tmp_path / "a", 5, Milvus()).close()
    folder = tmp_path / "a" / "backend" / "milvus.db"
    (manifest,), (schema,) = folder.rglob("manifest.json"), folder.rglob("schema.json")
    if where == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif where == "data":
        content = json.loads(manifest.read_text())
        content["partitions"]["_default"]["data_files"] = ["../../../../../../../elsewhere.parquet"]
        manifest.write_text(json.dumps(content))
    else:
        function = {"name": "f", "params": {"provider": "openai", "base_url": "http://127.0.0.1:9/v1"}}
        schema.write_text(json.dumps(json.loads(schema.read_text()) | {"functions": [function]}))
    with pytest.raises(DataError, match="elsewhere|in its folder alone"):
        read_index(tmp_path / "a")


def test_nobody_at_the_uri(tmp_path):
    backend = Milvus(uri="http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"Milvus cannot .*http://127\.0\.0\.1:9"):
        write(tmp_path / "a", 5, backend)
    assert not any(tmp_path.iterdir())


def test_damage_is_one_error_and_nothing_is_logged_beside_it(tmp_path, caplog):
    write(tmp_path / "a", 5, Milvus()).close()
    (schema,), (manifest,) = tmp_path.rglob("schema.json"), (tmp_path / "a" / "backend").rglob("manifest.json")
    good = schema.read_text()
    schema.write_text("{")
    with pytest.raises(DataError, match=r"Milvus cannot open .*schema\.json' is not valid JSON[^.]*\.$"):
        read_index(tmp_path / "a")
    schema.write_text(good)
    manifest.write_text("{")  # Milvus Lite warns, and reads the one before.
    with contextlib.suppress(DataError):
        read_index(tmp_path / "a").close()
    assert not caplog.records


def test_an_embedded_one_is_locked_until_it_is_closed(tmp_path):
    folder = str(tmp_path / "a" / "backend" / "milvus.db")
    index = write(tmp_path / "a", 30, Milvus())
    # Indexes of one process share the lock.
    second = read_index(tmp_path / "a")
    index.close()
    wanted = [[int(np.argmax(vectors(30) @ vectors(1)[0]))]]
    assert second.search(vectors(1), 1)[0].tolist() == wanted
    with pytest.raises(milvus_lite.DataDirLockedError):
        milvus_lite.MilvusLite(folder)
    second.close()
    milvus_lite.MilvusLite(folder).close()
    # One that is forgotten is closed, too.
    third = read_index(tmp_path / "a")
    del third
    milvus_lite.MilvusLite(folder).close()
    # Written anew over an open one.
    index = read_index(tmp_path / "a")
    again = write(tmp_path / "a", 20, Milvus())
    assert len(again.finder) == 20
    assert again.search(vectors(1), 1)[0].tolist() == [[int(np.argmax(vectors(20) @ vectors(1)[0]))]]
    with pytest.raises(milvus_lite.DataDirLockedError):
        milvus_lite.MilvusLite(folder)
    again.close()
    index.close()


_SEARCH = """
import sys
import numpy as np
from vsemb.errors import DataError
from vsemb.searching.storage import read_index
try:
    read_index(sys.argv[1])
except DataError as error:
    print(error, flush=True)
sys.stdin.readline()
print(read_index(sys.argv[1]).search(np.ones((1, 8), np.float32), 2)[0].shape)
"""


@pytest.mark.slow
def test_one_process_at_a_time_and_one_that_forgets_to_close_ends(tmp_path):
    index = write(tmp_path / "a", 30, Milvus())
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
