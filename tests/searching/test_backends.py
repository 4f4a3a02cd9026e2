"""Every backend: what it finds, that it comes back from the disk as it was, and few or equal items."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from vsemb.errors import DataError, InvalidArgumentError, MissingExtraError
from vsemb.quantization import pack_bits
from vsemb.registry import find_part, kinds
from vsemb.searching.backends.codes import bit_thresholds
from vsemb.searching.backends.exact import Exact

#: Names of backends that find candidates; int8 and binary are dtypes of `exact`.
NAMES = ["int8", "binary", *(kind for kind in kinds("search backend") if kind != "exact")]
NEEDS = {"faiss": "faiss", "scann": "scann", "milvus": "milvus_lite"}


def vectors(count: int, dim: int = 24, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, dim))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def needs(name: str) -> None:
    package = NEEDS.get(name.split("-")[0])
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.fixture(params=NAMES)
def name(request):
    needs(request.param)
    return request.param


def made(name, **fields):
    return Exact(name) if name in ("int8", "binary") else find_part("search backend", name, "backend")(**fields)


def build(name, items, directory, **fields):
    directory.mkdir()
    backend = made(name, **fields)
    return backend.open(directory, backend.build(items, directory))


def test_an_item_finds_itself_and_its_neighbours(name, tmp_path):
    items = vectors(300)
    queries = items[[7, 123]] + 0.02 * vectors(2, seed=1)
    backend = build(name, items, tmp_path / "a")
    rows, scores = backend.search(queries, 40)
    assert len(backend) == 300 and rows.shape == scores.shape == (2, 40) and rows.dtype == np.int64
    assert rows[:, 0].tolist() == [7, 123]
    for found, ranks in zip(rows, scores, strict=True):
        real = found[found >= 0]
        assert len(set(real.tolist())) == len(real) and (real < 300).all()
        assert (np.diff(ranks[found >= 0]) <= 1e-6).all()
    nearest = np.argsort(-(queries @ items.T), axis=1)[:, :5]
    hits = [len(set(a) & set(b)) / 5 for a, b in zip(nearest.tolist(), rows.tolist(), strict=True)]
    assert np.mean(hits) >= (1 if name == "faiss-flat" else 0.5)
    # Again, and as float16.
    assert backend.search(queries, 40)[0].tolist() == rows.tolist()
    backend.close()
    other = build(name, items.astype(np.float16), tmp_path / "b")
    assert other.search(queries, 1)[0].tolist() == [[7], [123]]
    other.close()


@pytest.mark.parametrize("count", [1, 3])
def test_few_items_and_an_odd_size(name, tmp_path, count):
    items = vectors(count, dim=7)
    backend = build(name, items, tmp_path / "a")
    rows, _ = backend.search(items, count)
    assert sorted(rows[0].tolist()) == list(range(count)) and rows[:, 0].tolist() == list(range(count))
    assert backend.search(np.zeros((0, 7), np.float32), 1)[0].shape == (0, 1)
    backend.close()


def test_int8_by_hand(tmp_path):
    # Scales 2 / 127 and 1 / 127: (2, -1) is (127, -64) and (0, 1) is (0, 127); zeros stay zeros.
    backend = build("int8", np.array([[2, -1], [0, 1], [0, 0]], np.float32), tmp_path / "a")
    np.testing.assert_array_equal(backend.codes, [[127, -64], [0, 127], [0, 0]])
    rows, scores = backend.search(np.array([[1, 0.5]], np.float32), 3)
    assert rows.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(scores, [[(127 - 32) * 2 / 127, 0.5, 0]], rtol=1e-6)


def test_int8_is_off_by_half_a_step_at_most(tmp_path):
    items = vectors(500)
    backend = build("int8", items, tmp_path / "a")
    restored = backend.codes * backend.calibration[:, None]
    assert (np.abs(restored - items) <= backend.calibration[:, None] * 0.5001).all()


def test_binary_by_hand(tmp_path):
    items = np.array([[1, 1, 1], [1, -1, 1], [-1, -1, -1]], np.float32)
    rows, scores = build("binary", items, tmp_path / "a").search(np.array([[0.1, -3, 2]], np.float32), 3)
    assert rows.tolist() == [[1, 0, 2]] and scores.tolist() == [[0, -1, -2]]


def test_bits_of_what_is_never_negative_are_about_the_median():
    items = np.array([[1, -1], [2, 0], [3, 1]], np.float32)
    assert bit_thresholds(items).tolist() == [2, 0]
    assert pack_bits(items, bit_thresholds(items)).tolist() == [[0], [0], [0b11000000]]


def test_the_two_kinds_of_bits_agree(tmp_path):
    needs("faiss-binary")
    items, queries = vectors(200, dim=75), vectors(3, dim=75, seed=1)
    own = build("binary", items, tmp_path / "a").search(queries, 200)
    theirs = build("faiss-binary", items, tmp_path / "b").search(queries, 200)
    np.testing.assert_array_equal(own[1], theirs[1])
    full = (items > 0)[None] != (queries > 0)[:, None]
    np.testing.assert_array_equal(own[1], -np.sort(full.sum(axis=2), axis=1))


@pytest.mark.parametrize(
    ("name", "fields", "argument"),
    [
        ("faiss-ivf", {"nlist": 0}, "nlist"),
        ("faiss-ivf", {"nlist": 51}, "nlist"),
        ("faiss-ivf", {"nlist": 4, "nprobe": 5}, "nprobe"),
        ("scann", {"leaves": 51}, "leaves"),
        ("scann", {"leaves": 3, "leaves_to_search": 4}, "leaves_to_search"),
        ("milvus", {"uri": "milvus.example.org:19530"}, "uri"),
        ("milvus", {"uri": "https://me:secret@example.org"}, "uri"),
    ],
)
def test_fields_that_are_refused(name, fields, argument, tmp_path):
    needs(name)
    with pytest.raises(InvalidArgumentError) as caught:
        made(name, **fields).build(vectors(50), tmp_path)
    assert caught.value.argument == argument and "secret" not in str(caught.value)


FEW = {"faiss-ivf": {"nlist": 30, "nprobe": 1}, "scann": {"leaves": 30, "leaves_to_search": 1}}


@pytest.mark.parametrize(("name", "parameters"), FEW.items())
def test_partitions_that_hold_too_few_say_so(name, parameters, tmp_path):
    needs(name)
    backend = build(name, vectors(90), tmp_path / "a", **parameters)
    rows, _ = backend.search(vectors(4, seed=1), 90)
    assert (rows == -1).any() and ((rows >= -1) & (rows < 90)).all()


@pytest.mark.parametrize("name", ["faiss-flat", "faiss-binary", "scann"])
def test_damaged_files_are_one_error(name, tmp_path):
    needs(name)
    backend = made(name)
    values = backend.build(vectors(50), tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix not in (".npy",) or name == "scann":
            path.write_bytes(b"not this")
    with pytest.raises(DataError, match="damaged"):
        backend.open(tmp_path, values)


def test_what_is_not_installed_names_the_extra(monkeypatch):
    for package in ("faiss", "scann.scann_ops.py", "pymilvus", "milvus_lite"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    for name in NAMES[2:]:
        extra = "milvus" if name == "milvus" else "index"
        with pytest.raises(MissingExtraError, match=rf"vsemb\[{extra}\]"):
            made(name).require_library()
    with pytest.raises(MissingExtraError, match=r"vsemb\[milvus\]"):
        made("milvus", uri="http://localhost:1").require_library()
