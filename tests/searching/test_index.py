"""The exact index: what it finds, and what it refuses."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.searching import index as module
from vsemb.searching.index import IndexSource, SearchIndex, StaleIndexError
from vsemb.searching.storage import read_index, write_index

SOURCE = IndexSource("run", "data", ("train", "val"), "image", "cosine")


def vectors(count: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def plain(embeddings: np.ndarray, source: IndexSource = SOURCE) -> SearchIndex:
    count = len(embeddings)
    return SearchIndex(embeddings, np.arange(count), [f"{i}.png" for i in range(count)], source)


def test_by_hand():
    # Scores of (0.6, 0.8) with (1,0), (0,1), (0.6,0.8), (-1,0): 0.6, 0.8, 1, -0.6.
    index = plain(np.array([[1, 0], [0, 1], [0.6, 0.8], [-1, 0]], np.float32))
    rows, scores = index.search(np.array([[0.6, 0.8]], np.float32), k=3)
    assert rows.tolist() == [[2, 1, 0]]
    np.testing.assert_allclose(scores, [[1.0, 0.8, 0.6]], atol=1e-6)
    assert index.search(np.array([[0.6, 0.8]], np.float32), k=9)[0].tolist() == [[2, 1, 0, 3]]
    assert index.search(np.array([[0.6, 0.8]], np.float32), k=9, exclude=[2, 0])[0].tolist() == [[1, 3]]


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("numbers", [1, 25, 32, 40, 1 << 24])
def test_blocks_find_what_a_full_sort_finds(monkeypatch, kind, numbers):
    # Five queries of eight entries: a block holds numbers / 8 items, from one at a time to all at once.
    monkeypatch.setattr(module, "BLOCK", numbers)
    items, queries = vectors(23), vectors(5, seed=1)
    rows, scores = plain(items, dataclasses.replace(SOURCE, kind=kind)).search(queries, k=7, exclude=[3, 22])
    wanted = queries @ items.T
    wanted[:, [3, 22]] = -np.inf
    assert rows.tolist() == np.argsort(-wanted, axis=1)[:, :7].tolist()
    np.testing.assert_allclose(scores, -np.sort(-wanted, axis=1)[:, :7], rtol=1e-5)


@pytest.mark.parametrize("numbers", [1, 24, 1 << 24])
def test_equal_scores_come_in_the_order_of_the_rows(monkeypatch, numbers):
    monkeypatch.setattr(module, "BLOCK", numbers)
    index = plain(np.ones((9, 8), np.float32))
    assert index.search(np.ones((1, 8), np.float32), k=4)[0].tolist() == [[0, 1, 2, 3]]


# By (1, 0) are violated: (.5, 0) by .5² = .25, (1, 1) not, (0, 1) by 1. The violations the other way round,
# of (1, 0) by the items, are 0, 1 and 1.
ORDERED = np.array([[0.5, 0], [1, 1], [0, 1]], np.float32)
ABOVE, BELOW = ([1, 0, 2], [0, -0.25, -1]), ([0, 1, 2], [0, -1, -1])


@pytest.mark.parametrize(
    ("kind", "query_kind", "wanted"),
    [
        # Images that show what a text, or an image in its place, asks for.
        *(("image", query_kind, ABOVE) for query_kind in (None, "text", "image")),
        # Captions that say what a text says; captions that are true of an image.
        ("text", "text", ABOVE),
        *(("text", query_kind, BELOW) for query_kind in (None, "image")),
    ],
)
def test_which_side_of_an_order_a_query_is(kind, query_kind, wanted):
    query = np.array([[1.0, 0.0]], np.float32)
    for similarity, (rows, scores) in (("order", wanted), ("order-reversed", _other(wanted))):
        index = plain(ORDERED, dataclasses.replace(SOURCE, kind=kind, similarity=similarity))
        found = index.search(query, k=3, query_kind=query_kind)
        assert found[0].tolist() == [rows]
        np.testing.assert_allclose(found[1], [scores], atol=1e-6)


def _other(wanted):
    return BELOW if wanted is ABOVE else ABOVE


def test_symmetric_similarities_know_no_sides():
    for kind in ("image", "text"):
        index = plain(vectors(9), dataclasses.replace(SOURCE, kind=kind))
        found = [index.search(vectors(4, seed=1), k=5, query_kind=side) for side in (None, "image", "text")]
        for rows, scores in found[1:]:
            assert rows.tolist() == found[0][0].tolist()
            np.testing.assert_allclose(scores, found[0][1], rtol=1e-6)


def test_bad_searches():
    index = plain(vectors(3))
    with raises_argument("query_kind"):
        index.search(vectors(1), k=1, query_kind="sound")
    with raises_argument("k"):
        index.search(vectors(1), k=0)
    for queries in (vectors(1, dim=7), vectors(2)[0], np.full((1, 8), np.nan, np.float32)):
        with raises_argument("queries"):
            index.search(queries, k=1)


def test_round_trip_and_replacement(tmp_path):
    items = vectors(4)
    index = write_index(tmp_path / "a", items, np.arange(4) * 10, list("abcd"), SOURCE)
    for opened in (index, read_index(tmp_path / "a"), read_index(tmp_path / "a", SOURCE)):
        assert len(opened) == 4 and opened.keys == list("abcd") and opened.source == SOURCE
        assert opened.ids.tolist() == [0, 10, 20, 30]
        np.testing.assert_array_equal(opened.embeddings, items)
    write_index(tmp_path / "a", items[:2], np.arange(2), ["x", "y"], SOURCE)
    assert read_index(tmp_path / "a").keys == ["x", "y"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("field", "value"), [("run", "other"), ("dataset", "other"), ("splits", ("val",)), ("similarity", "dot")]
)
def test_a_stale_index_is_refused_with_the_reason(tmp_path, field, value):
    write_index(tmp_path / "a", vectors(2), np.arange(2), ["x", "y"], SOURCE)
    with pytest.raises(StaleIndexError, match=f"another {field} .*vsemb index"):
        read_index(tmp_path / "a", dataclasses.replace(SOURCE, **{field: value}))


@pytest.mark.parametrize("name", ["embeddings.npy", "ids.npy", "items.arrow"])
def test_damage_is_noticed(tmp_path, name):
    write_index(tmp_path / "a", vectors(2), np.arange(2), ["x", "y"], SOURCE)
    data = bytearray((tmp_path / "a" / name).read_bytes())
    data[-3] ^= 1
    (tmp_path / "a" / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name} is damaged"):
        read_index(tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        read_index(tmp_path / "a")


def test_manifests_of_something_else(tmp_path):
    with pytest.raises(DataError, match="No index manifest"):
        read_index(tmp_path / "missing")
    write_index(tmp_path / "a", vectors(2), np.arange(2), ["x", "y"], SOURCE)
    path = tmp_path / "a" / "manifest.json"
    good = json.loads(path.read_text())
    for change, error, message in (
        ({"format": "other"}, DataError, "not an index manifest"),
        ({"version": 99}, StaleIndexError, "version 99"),
        ({"source": {}}, DataError, "is broken"),
        ({"backend": None}, DataError, "is broken"),
        ({"source": good["source"] | {"kind": "sound"}}, DataError, "manifest.json is broken.*sound"),
        ({"settings": good["settings"] | {"backend": "exaCt"}}, DataError, "manifest.json is broken.*exaCt"),
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(error, match=message):
            read_index(tmp_path / "a")


def test_what_is_not_written(tmp_path):
    items = vectors(2)
    for embeddings, ids, keys in (
        (items, np.arange(3), ["x", "y"]),
        (items, np.arange(2), ["x"]),
        (items[:0], np.arange(0), []),
    ):
        with pytest.raises(DataError, match="An index must have items"):
            write_index(tmp_path / "a", embeddings, ids, keys, SOURCE)
    items[1, 2] = np.inf
    with pytest.raises(DataError, match="'y' is not finite"):
        write_index(tmp_path / "a", items, np.arange(2), ["x", "y"], SOURCE)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not lose")
    with pytest.raises(DataError, match="must be an index or not exist"):
        write_index(tmp_path / "mine", vectors(2), np.arange(2), ["x", "y"], SOURCE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_only_an_index_is_replaced_though_damaged(tmp_path):
    def write():
        write_index(tmp_path / "a", vectors(2), np.arange(2), ["x", "y"], SOURCE)

    def refused():
        with pytest.raises(DataError, match="must be an index or not exist"):
            write()

    manifest = tmp_path / "a" / "manifest.json"
    manifest.parent.mkdir()
    manifest.write_text('{"format": "vsemb-dataset"}')  # Other directories have one, too.
    refused()
    manifest.unlink()
    write()
    for broken in ("{", '{"format": "vsemb-index", "settings": null, "backend": 3}'):
        manifest.write_text(broken)
        write()
    (tmp_path / "a" / "thesis.txt").write_text("do not lose")
    refused()
    assert (tmp_path / "a" / "thesis.txt").exists()
