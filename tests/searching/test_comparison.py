"""The comparison of backends: its figures, by hand and against the exact search."""

from __future__ import annotations

import numpy as np

from tests.raising import raises_argument
from vsemb.errors import missing_extra
from vsemb.searching.backends.exact import Exact
from vsemb.searching.backends.faiss import FaissFlat
from vsemb.searching.comparison import BackendComparison, compare
from vsemb.searching.index import IndexSource, SearchIndex
from vsemb.similarities import Dot

SOURCE = IndexSource("run", "data", ("val",), "image", "dot")


def test_by_hand():
    # Signs tell (3, 1) and (1, 3) not apart, so both have distance 0 to (1, 2), and the first comes first;
    # the exact best is (1, 3), with 7 against 5, and the exact third (-1, 1), with 1.
    items = np.array([[3, 1], [1, 3], [-1, 1], [-1, -1]], np.float32)
    index = SearchIndex(items, np.array([7, 8, 9, 10]), list("abcd"), SOURCE)
    rows = list(
        compare(
            index,
            np.array([[1, 2]], np.float32),
            own=np.array([8]),
            backends=[Exact("binary"), Exact("float16")],
        )
    )
    assert [row.name for row in rows] == ["exact float32", "exact binary", "exact float16"]
    exact, binary, half = rows
    assert exact.recall == (1, 1) and exact.reranked is None
    assert exact.retrieval == (100, 100) and exact.change == (0, 0)
    assert binary.recall == (0, 1) and binary.reranked == (1, 1) and binary.change == (0, 0)
    assert half.recall == (1, 1) and half.reranked is None
    # 128 bytes of header and 8 or 4 of each item.
    assert exact.megabytes == (128 + 4 * 8) / 1e6 and half.bytes_a_vector == 32 + 4
    for row in rows:
        assert row.build_seconds > 0 and min(row.milliseconds) > 0


def test_what_is_not_installed_is_a_row(monkeypatch):
    def check(self):
        raise missing_extra("faiss-cpu", "index")

    monkeypatch.setattr(FaissFlat, "require_library", check)
    index = SearchIndex(np.eye(3, dtype=np.float32), np.arange(3), list("abc"), SOURCE)
    queries = np.eye(3, dtype=np.float32)
    _, row = compare(index, queries, backends=[FaissFlat()])
    assert "`faiss-cpu` is not installed" in row.missing and "vsemb[index]" in row.missing
    assert row.recall is None and row.milliseconds is None
    with raises_argument("queries"):
        list(compare(index, queries[:0], backends=[]))


def test_what_does_not_serve_a_similarity_is_a_row(monkeypatch):
    monkeypatch.setattr(Dot, "candidates_by_inner_product", False)
    index = SearchIndex(np.eye(3, dtype=np.float32), np.arange(3), list("abc"), SOURCE)
    exact, binary, half = compare(index, index.embeddings, backends=[Exact("binary"), Exact("float16")])
    assert exact.missing is None and half.missing is None
    assert "backend" in binary.missing and "dot" in binary.missing and binary.recall is None
    shown = str(BackendComparison((exact, binary, half), 3, 3, SOURCE, "3 texts"))
    assert f"exact binary: {binary.missing}" in shown
