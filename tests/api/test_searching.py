"""`vsemb.find`, `vsemb.index`, `vsemb.compare_backends` and `vsemb.embed`, called from Python."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from vsemb.errors import DataError
from vsemb.runs.run import Run
from vsemb.searching.backends.exact import Exact

pytestmark = pytest.mark.usefixtures("opened_once")


@pytest.fixture(scope="module")
def run(tiny_pixel_run, tmp_path_factory):
    """A copy, since the first search of a run writes an index into it."""
    return Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path_factory.mktemp("search") / "run"))


@pytest.fixture
def pictures(scenes, tmp_path):
    split = scenes.split("val")
    for row in range(3):
        (tmp_path / f"{row}.png").write_bytes(split.read_image(row))
    return tmp_path


def test_results_are_a_sequence_that_prints_itself(run, scenes):
    found = vsemb.find(run, "two shapes", data=scenes, split="val", k=3)
    assert len(found) == 3 and found[0].rank == 1 and found[0].score >= found[2].score
    assert found.query.text == "two shapes" and found.failure is None
    assert str(found).count("\n") == 3 and found[0].item.key in found._repr_html_()
    assert [each["key"] for each in found.to_json()["results"]] == [each.item.key for each in found]
    by_directory = vsemb.find(str(run.path), "two shapes", data=str(scenes.path), split="val", k=3)
    assert by_directory.results == found.results
    key = scenes.split("val").keys[0]
    (first,) = vsemb.find(run, image=key, data=scenes, split="val", k=1, keep_query=True)
    assert first.item.key == key


def test_an_index_of_files_is_searched_by_its_directory(run, pictures):
    made = vsemb.index(run, images=[pictures], out=pictures / "index", backend="exact", dtype="float16")
    assert (made.items, made.backend) == (3, Exact("float16"))
    again = vsemb.index(run, images=[pictures], out=pictures / "index", backend=Exact("float16"))
    assert again.kept == 3 and "3 unchanged images" in str(again)
    (found,) = vsemb.find(pictures / "index", image=pictures / "1.png", keep_query=True, k=1)
    assert found.item.key.endswith("1.png") and found.problem is None
    compared = vsemb.compare_backends(pictures / "index")
    assert compared.queries == "3 pictures" and compared.rows[0].recall == (1.0, 1.0)
    assert compared.rows[0].retrieval is None


def test_folders_of_one_name_have_indexes_of_their_own(run, pictures):
    """The second replaced the first."""
    for parent, file in (("a", "0.png"), ("b", "1.png")):
        (pictures / parent / "photos").mkdir(parents=True)
        shutil.copy(pictures / file, pictures / parent / "photos")
    made = [vsemb.index(run, images=[pictures / parent / "photos"]) for parent in ("a", "b")]
    for each, name in zip(made, ("0.png", "1.png"), strict=True):
        assert vsemb.find(each.where, "two shapes", k=1)[0].item.key.endswith(name)


def test_vectors_are_written_once(run, pictures):
    written = vsemb.embed(run, images=[pictures], out=pictures / "images.npy")
    assert (written.items, written.dim, written.kind) == (3, 16, "image") and "3 images" in str(written)
    assert np.load(pictures / "images.npy").shape == (3, 16)
    texts = vsemb.embed(run, texts=["two shapes", "zyzzyva"], out=pictures / "texts.npy")
    assert texts.items == 1 and list(texts.skipped) == ["zyzzyva"]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"k": 0}, "k"),
        ({"k": True}, "k"),
        ({"minus": "red"}, "minus"),
        ({"compose": ["two"]}, "query"),
        ({"keepquery": True}, "argument"),
        ({"run": "runs/moved"}, "run"),
        ({"out": "sheet.gif"}, "out"),
        ({"split": "vall"}, "split"),
    ],
)
def test_arguments_of_a_search_that_are_refused(run, options, argument):
    with raises_argument(argument):
        vsemb.find(run, "two shapes", **options)


def test_arguments_of_an_index_that_are_refused(run, pictures):
    for options, argument in (
        ({"backend": "fais"}, "backend"),
        ({"nprobe": 3}, "nprobe"),
        ({"backend": "faiss-ivf", "nprobe": 0}, "nprobe"),
        ({"backend": Exact(), "dtype": "int8"}, "dtype"),
        ({"images": [pictures], "split": "val"}, "split"),
        ({"images": [pictures], "candidates": [10]}, "candidates"),
    ):
        with raises_argument(argument):
            vsemb.index(run, **options)
    for options in ({}, {"images": [pictures], "texts": ["two"]}):
        with raises_argument("images"):
            vsemb.embed(run, out=pictures / "a.npy", **options)


def test_a_captioning_run_is_refused_as_an_object_too(caption_run):
    with pytest.raises(DataError, match="must be a run for retrieval"):
        vsemb.find(caption_run, "two")
