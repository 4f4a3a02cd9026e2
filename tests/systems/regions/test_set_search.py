"""Searches with a run whose embeddings are sets, against scores of one pair at a time."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
from keras import ops

from tests.raising import raises_argument
from tests.searched import search_run
from vsemb import Run, write_projector
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs.indexing import build_index, open_index
from vsemb.runs.inputs import Query
from vsemb.systems.regions import set_search
from vsemb.systems.regions.image_tower import regions_of
from vsemb.systems.regions.set_search import MultiVectorSearch
from vsemb.systems.regions.similarities import MaxSim


@pytest.fixture(scope="module")
def run(region_run) -> Run:
    return Run.open(region_run.path)


@pytest.fixture(scope="module")
def images(run, region_scenes) -> np.ndarray:
    """The regions of all images of val: (12, 6, 16)."""
    features = regions_of(run, region_scenes).rows(region_scenes.split("val").ids)
    return ops.convert_to_numpy(run.model.encode_images(features))


@pytest.fixture(scope="module")
def captions(run, region_scenes) -> np.ndarray:
    """The words of all captions of val: (60, words, 16)."""
    return ops.convert_to_numpy(run.model.encode_texts(run.tokenizer(region_scenes.split("val").captions)))


def words(run: Run, text: str) -> np.ndarray:
    return ops.convert_to_numpy(run.model.encode_texts(run.tokenizer([text])))[0]


def pair_score(regions: np.ndarray, words: np.ndarray) -> float:
    """Equation 8 by loops, over what is no padding."""
    real = [each for each in regions if each.any()]
    return sum(max((float(region @ word) for region in real), default=0.0) for word in words if word.any())


def found(results) -> list[tuple[str, float]]:
    return [(result.item.key, pytest.approx(result.score, rel=1e-4, abs=1e-4)) for result in results]


def best(keys: list[str], scores: list[float]) -> list[tuple[str, float]]:
    order = np.argsort(-np.array(scores), kind="stable")
    return [(keys[row], scores[row]) for row in order]


def test_a_text_finds_the_images_that_score_best(run, region_scenes, images) -> None:
    part, said = region_scenes.split("val"), words(run, "two pink shapes")
    wanted = best(part.keys, [pair_score(regions, said) for regions in images])
    results = search_run(run, region_scenes, Query("two pink shapes"), k=5, split="val")
    assert wanted[:5] == found(results)
    assert [result.rank for result in results] == [1, 2, 3, 4, 5]
    # Nothing is left behind in the run.
    assert not (run.path / "index").exists()


def test_an_image_finds_the_captions_that_score_best(run, region_scenes, images, captions) -> None:
    part = region_scenes.split("val")
    keys = [f"{part.keys[row]}#{place % 5}" for place, row in enumerate(part.caption_rows)]
    wanted = best(keys, [pair_score(images[3], said) for said in captions])
    query = Query(image=part.keys[3])
    results = search_run(run, region_scenes, query, k=60, split="val", captions=True)
    scores = dict(wanted)
    assert [score for _, score in wanted] == [score for _, score in found(results)]
    assert all(scores[key] == score for key, score in found(results))


def test_what_asks_its_own_kind_stands_as_the_text(run, region_scenes, images, captions) -> None:
    part = region_scenes.split("val")
    # Of regions only the directions count.
    units = images / np.maximum(np.linalg.norm(images, axis=2, keepdims=True), 1e-12)
    wanted = best(part.keys, [pair_score(regions, units[2]) for regions in units])
    kept = search_run(run, region_scenes, Query(image=part.keys[2]), k=99, split="val", keep_query=True)
    assert wanted == found(kept)
    said = words(run, "a red circle")
    top = max(pair_score(caption, said) for caption in captions)
    (first,) = search_run(run, region_scenes, Query("a red circle"), k=1, split="val", captions=True)
    assert first.score == pytest.approx(top, rel=1e-4)


def test_long_vectors_are_not_near_to_all_images(run, region_scenes, images, monkeypatch) -> None:
    search = MultiVectorSearch(run, region_scenes, "val", "image")
    monkeypatch.setattr(search, "_similarity", MaxSim())
    longer = images * np.where(np.arange(len(images)) == 5, 100, 1)[:, None, None]
    monkeypatch.setattr(search, "_embed", lambda: iter([(np.arange(len(images)), longer)]))
    rows, scores = search.search(images, len(images), query_kind="image")
    # Each is nearest to itself, with 1 for each of its regions.
    assert rows[:, 0].tolist() == list(range(len(images)))
    np.testing.assert_allclose(scores[:, 0], np.any(images != 0, axis=2).sum(axis=1), rtol=1e-5)


@pytest.mark.slow
def test_an_image_finds_all_but_itself(run, region_scenes, tmp_path) -> None:
    part, file = region_scenes.split("val"), tmp_path / "query.png"
    file.write_bytes(part.read_image(4))
    by_key, by_file = (
        search_run(run, region_scenes, Query(image=name), k=99, split="val") for name in (part.keys[4], str(file))
    )
    assert len(by_key) == 11 and part.keys[4] not in {result.item.key for result in by_key}
    # The cache keeps float16 numbers, a relative 2^-11, and the regions are those of the cache.
    scores = {result.item.key: result.score for result in by_file}
    size = max(map(abs, scores.values()))
    assert {r.item.key: pytest.approx(r.score, abs=0.01 * size) for r in by_key} == scores


def test_all_splits_and_blocks_of_any_size(run, region_scenes, monkeypatch) -> None:
    said = words(run, "a small square")[None]
    for kind, size in (("image", 72), ("text", 360)):
        whole = MultiVectorSearch(run, region_scenes, "all", kind)
        assert len(whole) == size and whole.source.splits == ("train", "val", "test")
        rows, scores = whole.search(said, 400, query_kind="text")
        assert rows.shape == (1, size)
        # Neither divides the numbers of items.
        monkeypatch.setattr(set_search, "_MOST_IMAGES", 7)
        monkeypatch.setattr(set_search, "_TEXTS", 50)
        again = MultiVectorSearch(run, region_scenes, "all", kind).search(said, 400, query_kind="text")
        monkeypatch.undo()
        np.testing.assert_allclose(again[1], scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            np.sort(again[0]), np.sort(rows), err_msg="each item is found once, whatever the blocks are"
        )


def test_several_queries_and_rows_left_out(run, region_scenes) -> None:
    search = MultiVectorSearch(run, region_scenes, "val", "image")
    texts = [words(run, text) for text in ("a red circle", "two blue squares and a star")]
    padded = np.zeros((2, 9, search.dim), np.float32)
    for place, each in enumerate(texts):
        padded[place, : len(each)] = each
    rows, scores = search.search(padded, 4, exclude=(3, 5), query_kind="text")
    assert rows.shape == (2, 4) and not np.isin(rows, (3, 5)).any()
    for place, each in enumerate(texts):
        alone = search.search(each[None], 12, query_kind="text")
        kept = ~np.isin(alone[0][0], (3, 5))
        assert rows[place].tolist() == alone[0][0][kept][:4].tolist()
        np.testing.assert_allclose(scores[place], alone[1][0][kept][:4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("missing", "kept"), [(0, True), (1, False)], ids=["fits", "does-not"])
def test_what_fits_is_kept(run, region_scenes, images, monkeypatch, missing: int, kept: bool) -> None:
    said = words(run, "a small square")[None]
    search = MultiVectorSearch(run, region_scenes, "val", "image", keep=images.nbytes - missing)
    first = search.search(said, 12, query_kind="text")
    embed, embedded = search._embed, []
    monkeypatch.setattr(search, "_embed", lambda: embedded.append(1) or embed())
    second = search.search(said, 12, query_kind="text")
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    assert embedded == ([] if kept else [1])
    search.close()
    search.search(said, 12, query_kind="text")
    assert embedded == ([1] if kept else [1, 1])


def test_an_image_by_its_row(run, region_scenes) -> None:
    search = MultiVectorSearch(run, region_scenes, "all", "image")
    store = regions_of(run, region_scenes)
    for row in (0, 47, 48, 71):
        wanted = run.model.encode_images(store.rows(search.ids[[row]]))[0]
        np.testing.assert_allclose(search.embedding(row), wanted, rtol=1e-5, atol=1e-6)


def test_what_sets_cannot_do_is_refused_before_any_work(run, region_scenes, monkeypatch) -> None:
    monkeypatch.setattr(set_search, "DatasetItems", None)
    for query, options, name in (
        (Query("two", minus=("red",)), {}, "minus"),
        (Query("two", plus=("red",)), {}, "plus"),
        (Query(compose=("two", "red")), {}, "compose"),
        (Query(abstract=("two", "red")), {}, "abstract"),
        (Query("two"), {"resort": 3}, "resort"),
        (Query("two"), {"candidates": 100}, "candidates"),
    ):
        with raises_argument(name):
            search_run(run, region_scenes, query, split="val", **options)
        if not options:
            with raises_argument(name):
                MultiVectorSearch.check(run, query, run.path, 5)


def test_what_cannot_be_searched(run, region_scenes, scenes, tmp_path) -> None:
    search = MultiVectorSearch(run, region_scenes, "val", "image")
    said = words(run, "two")[None]
    for queries, k, candidates in (
        (said, 0, None),
        (said, 1, 5),
        (said[0], 1, None),
        (said * np.nan, 1, None),
    ):
        with pytest.raises(InvalidArgumentError):
            search.search(queries, k, candidates=candidates)
    with raises_argument("split"):
        MultiVectorSearch(run, region_scenes, "nowhere", "image")
    with pytest.raises(DataError, match="vsemb regions"):
        search_run(run, scenes, Query("two"), split="val")
    # Captions are there all the same.
    assert len(search_run(run, scenes, Query("two"), k=3, split="val", captions=True)) == 3
    with raises_argument("query"):
        search_run(run, region_scenes, Query("zyzzyva"), split="val")
    copy = StoredDataset.open(shutil.copytree(scenes.path, tmp_path / "scenes"))
    with pytest.raises(DataError, match="vsemb regions"):
        search_run(run, copy, Query("two"))


def test_scores_that_are_no_numbers(run, region_scenes, monkeypatch) -> None:
    search = MultiVectorSearch(run, region_scenes, "val", "image")
    broken = [(rows, np.full_like(vectors, np.nan)) for rows, vectors in search._blocks()]
    monkeypatch.setattr(search, "_embed", lambda: itertools.chain(broken))
    with pytest.raises(DataError, match="NaN"):
        search.search(words(run, "two")[None], 3, query_kind="text")


def test_sets_have_no_index(region_run, region_scenes):
    for make in (build_index, open_index):
        with pytest.raises(DataError, match="vsemb search"):
            make(region_run, region_scenes, "val")
    assert not (region_run.path / "index").exists()


def test_sets_are_no_points(region_run, region_scenes, tmp_path) -> None:
    with pytest.raises(DataError, match="vsemb report"):
        write_projector(region_run, data=region_scenes, split="val", out=tmp_path / "projector")
    assert not list(tmp_path.iterdir())
