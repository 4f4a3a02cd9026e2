"""Image files without captions on the page: what is said, found, drawn and refused."""

from __future__ import annotations

import io
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.demo.answers import Demo
from vsemb.demo.page import Cards, build_page, open_tabs
from vsemb.demo.pictures import FilePictures, IndexedPictures, open_source
from vsemb.demo.thumbnails import Thumbnails
from vsemb.errors import DataError
from vsemb.runs import embedding, indexing
from vsemb.runs.indexing import build_index, index_files, open_files
from vsemb.runs.inputs import Query, image_files
from vsemb.runs.run import Run
from vsemb.runs.searching import SearchSession
from vsemb.runs.serve import check_run
from vsemb.searching.storage import read_index

_ODD = "<b>it's 5 & 6"


def write_photos(scenes, folder):
    """Twelve image files of several formats and sizes, one below a folder with an odd name, and one that is torn."""
    split = scenes.split("val")
    (folder / _ODD).mkdir(parents=True)
    for row in range(12):
        image = Image.open(io.BytesIO(split.read_image(row))).convert("RGB").resize((640 + row, 480))
        name = f"{_ODD}/{row}.webp" if row == 3 else f"{row:02}.jpg"
        image.save(folder / name)
    (folder / "torn.png").write_bytes(b"\x89PNG torn")
    return folder


@pytest.fixture(scope="module")
def run(tiny_pixel_run, tmp_path_factory):
    return Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path_factory.mktemp("pictures") / "run"))


@pytest.fixture(scope="module")
def whole(run, scenes, tmp_path_factory):
    """Folder of photographs, and the index of them; treat both as read-only."""
    folder = write_photos(scenes, tmp_path_factory.mktemp("whole") / "photos")
    index, _ = index_files(run, image_files([folder]), folder.parent / "index")
    index.close()
    return folder, folder.parent / "index"


@pytest.fixture
def photos(whole, tmp_path):
    """A copy, whose files may be changed."""
    folder = shutil.copytree(whole[0], tmp_path / "photos")
    return folder


@pytest.fixture
def demo(run, whole):
    return Demo(run, FilePictures(read_index(whole[1])), report=lambda line: None)


def test_answers_are_those_of_a_search_in_the_index(demo, run, whole):
    with SearchSession(run, None, index=read_index(whole[1])) as search:
        key = str(whole[0] / "05.jpg")
        for found, query in (
            (demo.by_text("two shapes", 5), Query("two shapes")),
            (demo.by_image(key, 5), Query(image=key)),
            (demo.arithmetic(key, ["red"], ["blue"], 5), Query(image=key, minus=("red",), plus=("blue",))),
        ):
            wanted = search.find(query, k=5)
            assert [each.item.key for each in found.images] == [each.item.key for each in wanted]
            np.testing.assert_allclose([x.score for x in found.images], [x.score for x in wanted], atol=1e-5)
            assert found.captions == ()
    # A dropped file may be one of the folder, and its place is what is asked for.
    assert demo.by_image((whole[0] / "05.jpg").read_bytes(), 1).images[0].item.key == key


def test_the_page_says_what_is_searched_and_has_no_captions(demo, run, whole, monkeypatch):
    gradio = pytest.importorskip("gradio")
    monkeypatch.chdir(whole[0].parent)
    shown = open_tabs(run, lambda: FilePictures(index_files(run, image_files(["photos"]), "relative")[0]))
    assert shown.facts == "Search 12 pictures in photos by text or picture"
    blocks = build_page(gradio, run, shown)
    parts = [part for part in blocks.config["components"] if part["props"].get("visible", True)]
    assert [part["props"]["value"] for part in parts if part["type"] == "button"] == ["Search"] * 3 + ["Compare"]
    html = "".join(part["props"]["value"] for part in parts if part["type"] == "html")
    assert html.count('src="pictures/') == 12 + 3 and "<b>it" not in html and "&lt;b&gt;it" in html
    assert "of the dataset" not in str(parts)
    html = Cards(demo.pictures).answer(demo.by_text("two shapes", 12))
    assert "vsemb-caption" not in html and "&lt;b&gt;it&#39;s 5 &amp; 6/3.webp" in html and "<b>it" not in html
    shutil.rmtree("relative")


def test_each_start_draws_pictures_that_are_there(demo, photos, run):
    cards = Cards(demo.pictures)

    def places(html):
        return re.findall(r'"pictures/(\d+)"', html)

    first, same, other = (places(cards.start(5, np.random.default_rng(seed))) for seed in (0, 0, 1))
    assert first == same != other and len(set(first)) == 5
    assert len(places(cards.start(48))) == 12
    pictures = FilePictures(index_files(run, image_files([photos]), photos.parent / "index")[0])
    (photos / "00.jpg").unlink()
    (photos / "01.jpg").write_bytes(b"other")
    key = str(photos / "00.jpg")
    gone = pictures.place_of(key)
    drawn = pictures.drawn(12, np.random.default_rng())
    assert len(drawn) == 10 and gone not in drawn
    html = Cards(pictures).preview(key)
    assert "The file is gone" in html and "<img" not in html


def test_pictures_are_small_and_upright_and_only_those_of_the_index(photos, run):
    pytest.importorskip("fastapi")
    from fastapi import FastAPI
    from starlette.testclient import TestClient

    turned = Image.new("RGB", (900, 300), "red")
    turned.paste("blue", (0, 0, 450, 300))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(photos / "turned.jpg", exif=exif)
    pictures = FilePictures(index_files(run, image_files([photos]), photos.parent / "index")[0])
    application = FastAPI()
    Thumbnails(pictures).add_to(application)
    ask = TestClient(application).get
    place = pictures.place_of(str(photos / "turned.jpg"))
    for query, size in (("", (133, 400)), ("?large=true", (300, 900))):
        answer = ask(f"/pictures/{place}{query}")
        assert answer.headers["content-type"] == "image/jpeg" and answer.headers["cache-control"] == "no-store"
        shown = Image.open(io.BytesIO(answer.content))
        # Turned by a quarter, clockwise: what was on the left is at the top.
        assert shown.size == size and shown.getpixel((60, 5))[2] > 200
    for path in (len(pictures), -1, "a", "..%2f..%2fphotos%2f00.jpg", f"{photos}/00.jpg"):
        assert ask(f"/pictures/{path}").status_code in (404, 422)
    # What has taken the place of a file since is not shown, nor a link that has.
    other = photos.parent / "other.jpg"
    (photos / "02.jpg").rename(other)
    for change in (lambda path: path.symlink_to(other), lambda path: Image.new("RGB", (9, 9)).save(path)):
        path = photos / "03.jpg"
        path = path if path.exists() else photos / "04.jpg"
        path.unlink()
        change(path)
        answer = ask(f"/pictures/{pictures.place_of(str(path))}")
        assert answer.status_code == 404 and "changed" in answer.text


def test_the_second_start_embeds_nothing_and_another_folder_what_is_new(run, photos, capsys, monkeypatch):
    said = []
    embedded = []
    embed = embedding.embed_files
    monkeypatch.setattr(indexing, "embed_files", lambda *args: embedded.append(embed(*args)) or embedded[-1])

    def opened(images):
        _, opener = open_source(run, images=images, report=said.append)
        return opener()

    first = opened([photos])
    assert len(first) == 12 and len(said) == 1 and embedded[0].kept == 0
    assert "torn.png" in capsys.readouterr().err
    second = opened([str(photos)])
    assert len(second) == 12 and len(said) == 1 == len(embedded)
    Image.new("RGB", (32, 32)).save(photos / "new.png")
    assert len(opened([photos])) == 13 and embedded[-1].kept == 12
    # Files of another index beside the run.
    assert len(opened([photos / "0*.jpg"])) == 9 and embedded[-1].kept == 9
    # Of the same name elsewhere.
    other = shutil.copytree(photos / _ODD, photos.parent / "others" / "photos")
    assert [item.key for item in opened([other]).items] == [str(other / "3.webp")]
    assert len(opened([photos])) == 13 and len(embedded) == 4
    shutil.rmtree(run.path / "index")


def test_an_index_of_a_dataset_is_searched_with_its_pictures(tiny_pixel_run, pixel_index, scenes):
    opened, opener = open_source(pixel_index, data=scenes)
    pictures = opener()
    assert isinstance(pictures, IndexedPictures) and opened.fingerprint == tiny_pixel_run.fingerprint
    demo = Demo(opened, pictures, report=lambda line: None)
    answer = demo.by_image(scenes.split("val").keys[2], 3)
    assert len(answer.images) == 3 and answer.captions == ()
    assert demo.pictures.described == "12 images of scenes" and demo.pictures.examples()


def test_what_has_no_pictures_says_what_to_do(run, whole, scenes, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="must name image files"):
        open_source(run, images=[tmp_path / "empty"])
    with raises_argument("images"):
        open_source(run, images=[])
    for name, value in (("data", scenes), ("split", "val")):
        with raises_argument(name):
            open_source(run, images=[whole[0]], **{name: value})
    with raises_argument("run"):
        open_source(run, run=run.path)
    with raises_argument("images"):
        open_source(whole[1], images=[whole[0]])
    with raises_argument("split"):
        open_source(whole[1], split="val")
    build_index(run, scenes, "val", "text", out=tmp_path / "captions").close()
    with pytest.raises(DataError, match="holds captions.*vsemb index"):
        open_source(tmp_path / "captions")
    moved = shutil.copytree(run.path, tmp_path / "moved")
    index, _ = index_files(Run.open(moved), [str(whole[0] / "00.jpg")], tmp_path / "index")
    index.close()
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="no longer at .*moved.*`run`"):
        open_source(tmp_path / "index")
    opened, opener = open_source(tmp_path / "index", run=tmp_path / "elsewhere")
    assert len(opener()) == 1
    check_run(read_index(tmp_path / "index"), opened)


def test_an_index_that_was_made_for_other_files_is_made_again(run, photos):
    first = image_files([photos])[:4]
    open_files(run, first, photos.parent / "index", report=lambda line: None).close()
    os.utime(first[0], ns=(1, 1))
    index = open_files(run, first, photos.parent / "index", report=lambda line: None)
    assert index.stamps[0].tolist()[1] == 1
