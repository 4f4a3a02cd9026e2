"""Indexes with a backend: exact scores, what is left out, damage, and what they keep of their items."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.acts import chosen
from vsemb.errors import DataError
from vsemb.registry import find_part
from vsemb.searching.backends.backend import SearchBackend
from vsemb.searching.backends.exact import Exact
from vsemb.searching.backends.faiss import FaissInt8, FaissIVF
from vsemb.searching.comparison import all_backends
from vsemb.searching.index import IndexSource, Item, SearchIndex, StaleIndexError
from vsemb.searching.storage import read_index, write_index

SOURCE = IndexSource("run", "data", ("val",), "image", "cosine")
PACKAGES = {"faiss": "faiss", "scann": "scann", "milvus": "milvus_lite"}
ALL = [*all_backends()[1:], FaissInt8("float16")]


def vectors(count: int, dim: int = 16, seed: int = 0, similarity: str = "cosine") -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, dim))
    if similarity.startswith("order"):
        drawn = np.abs(drawn)
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def write(directory, embeddings, backend, **source):
    count = len(embeddings)
    keys = [f"{row}.png" for row in range(count)]
    return write_index(
        directory,
        embeddings,
        np.arange(count) * 10,
        keys,
        dataclasses.replace(SOURCE, **source),
        items=[Item(10 * row, key, "val", key, f"caption {row}") for row, key in enumerate(keys)],
        backend=backend,
        recorded={"run": "runs/a"},
    )


@pytest.fixture(params=ALL, ids=lambda backend: backend.label)
def backend(request):
    package = PACKAGES.get(request.param.kind.split("-")[0])
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return request.param


@pytest.mark.parametrize("similarity", ["cosine", "order-reversed"])
def test_scores_are_exact_and_so_is_the_order_among_all_candidates(backend, similarity, tmp_path):
    if not backend.approximate and similarity != "cosine":
        pytest.skip("float16 is searched without candidates")
    items, queries = (vectors(count, seed=seed, similarity=similarity) for count, seed in ((150, 0), (4, 1)))
    index = write(tmp_path / "a", items, backend, similarity=similarity, kind="text")
    kept = SearchIndex(np.asarray(index.embeddings, np.float32), index.ids, index.keys, index.source)
    rows, scores = kept.search(queries, 12, exclude=[3, 149])
    # With two left out, a backend is asked for all.
    candidates = None if not backend.approximate else 148
    found = index.search(queries, 12, exclude=[3, 149], candidates=candidates)
    np.testing.assert_allclose(found[1], scores, atol=1e-5)
    assert found[0].tolist() == rows.tolist()
    # However few candidates there are, their scores are exact.
    few = index.search(queries, 2, exclude=[3], candidates=None if not backend.approximate else 2)
    assert few[0].shape == (4, 2) and not np.isin(few[0], [3, -1]).any()
    np.testing.assert_allclose(few[1], kept.scores_of(queries, few[0]), atol=1e-5)
    assert len(index.items) == 150
    assert index.items[7] == Item(70, "7.png", "val", "7.png", "caption 7")
    assert index.recorded == {"run": "runs/a"} and index.backend == backend
    index.close()


def test_too_few_found_are_made_up_for(tmp_path):
    pytest.importorskip("faiss")
    items, queries = vectors(200), vectors(6, seed=1)
    ivf = FaissIVF(nlist=40, nprobe=1)
    index = write(tmp_path / "a", items, ivf)
    assert (index.finder.search(queries, 60)[0] == -1).any()
    rows, scores = index.search(queries, 60, exclude=[0])
    assert rows.shape == (6, 60) and (rows > 0).all() and np.isfinite(scores).all()
    assert all(len(set(row)) == 60 for row in rows.tolist())


def test_default_candidates_and_what_is_refused(tmp_path):
    index = write(tmp_path / "a", vectors(400), Exact("binary"))
    asked = []
    search = index.finder.search
    index.finder.search = lambda queries, n: asked.append(n) or search(queries, n)
    index.search(vectors(1, seed=1), 3)
    index.search(vectors(1, seed=1), 20, exclude=[5, 6])
    index.search(vectors(1, seed=1), 3, candidates=7)
    assert asked == [100, 202, 7]
    with raises_argument("candidates"):
        index.search(vectors(1), 4, candidates=3)


@pytest.mark.parametrize(
    ("kind", "fields", "argument"),
    [
        ("faiss", {}, "backend"),
        ("exact", {"dtype": "float8"}, "dtype"),
        # The finder has codes of its own; the dtype is that of the embeddings kept beside them.
        ("scann", {"dtype": "int8"}, "dtype"),
        ("exact", {"nprobe": 3}, "nprobe"),
        ("faiss-ivf", {"leaves": 3}, "leaves"),
    ],
)
def test_backends_and_fields_that_are_refused(kind, fields, argument):
    with raises_argument(argument):
        chosen(SearchBackend, "backend", kind, fields)


def test_everything_excluded_is_nothing_found(tmp_path):
    index = write(tmp_path / "a", vectors(4), Exact("int8"))
    rows, scores = index.search(vectors(2, seed=1), 3, exclude=range(4))
    assert rows.shape == scores.shape == (2, 0)


def test_float16_halves_the_file(tmp_path):
    for dtype in ("float32", "float16"):
        write(tmp_path / dtype, vectors(100), Exact(dtype))
    sizes = [(tmp_path / dtype / "embeddings.npy").stat().st_size - 128 for dtype in ("float32", "float16")]
    assert sizes == [6400, 3200]


def test_damage_in_the_backend_is_noticed(backend, tmp_path):
    if not backend.approximate:
        pytest.skip("nothing beside the embeddings")
    write(tmp_path / "a", vectors(50), backend).close()
    folder = tmp_path / "a" / "backend"
    for path in sorted(folder.rglob("*")):
        if backend.kind != "milvus" and path.is_file():
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DataError, match="damaged"):
                read_index(tmp_path / "a")
            path.write_bytes(whole)
    read_index(tmp_path / "a").close()
    shutil.rmtree(folder)
    with pytest.raises(DataError, match="cannot be read"):
        read_index(tmp_path / "a")


@pytest.mark.parametrize("change", ["items", "dim", "settings", "backend", "recorded"])
def test_manifests_that_do_not_fit(change, tmp_path):
    write(tmp_path / "a", vectors(5), Exact("int8"))
    path = tmp_path / "a" / "manifest.json"
    good = json.loads(path.read_text())
    path.write_text(json.dumps(good | {change: 3}))
    with pytest.raises(DataError, match="do not fit|broken"):
        read_index(tmp_path / "a")


@pytest.mark.parametrize(("backend", "parameter"), [("faiss-ivf", "nprobe"), ("scann", "count")])
def test_parameters_that_no_backend_takes(backend, parameter, tmp_path):
    pytest.importorskip(PACKAGES[backend.split("-")[0]])
    write(tmp_path / "a", vectors(50), find_part("search backend", backend, "backend")())
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    for number in (-1, 10**30):
        manifest["backend"][parameter] = number
        path.write_text(json.dumps(manifest))
        with pytest.raises(DataError, match="is damaged"):
            read_index(tmp_path / "a")


def test_an_older_version_is_stale(tmp_path):
    write(tmp_path / "a", vectors(5), Exact())
    path = tmp_path / "a" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    with pytest.raises(StaleIndexError, match="version 1, not 3.*vsemb index"):
        read_index(tmp_path / "a")


def test_a_failure_leaves_the_older_index(tmp_path, monkeypatch):
    write(tmp_path / "a", vectors(5), Exact())
    monkeypatch.setattr("vsemb.searching.backends.codes.Int8Codes.write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "a", vectors(6), Exact("int8"))
    assert len(read_index(tmp_path / "a")) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_approximate_backends_read_all_lists_of_few_items(tmp_path, monkeypatch):
    """The best ten of 3,000 random vectors lie in many lists, of which one in eight has fewer."""
    monkeypatch.setattr("vsemb.searching.backends.faiss.FEW", 3000)
    queries, found = vectors(50, seed=1), {}
    for count in (2999, 3000):
        embeddings = vectors(count)
        exact, _ = write(tmp_path / f"exact{count}", embeddings, Exact()).search(queries, 10)
        index = write(tmp_path / f"ivf{count}", embeddings, FaissIVF())
        rows, _ = index.search(queries, 10)
        found[count] = np.mean([len(set(one) & set(other)) for one, other in zip(exact, rows, strict=True)]) / 10
    assert found[2999] == 1.0 and found[3000] < 0.95
