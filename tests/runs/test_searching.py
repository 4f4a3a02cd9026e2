"""Searches: by text, by image, by arithmetic, and what they refuse."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from tests.searched import search_run
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs.inputs import Query
from vsemb.runs.run import Run
from vsemb.searching.arithmetic import combine, resort_by_mean
from vsemb.text import CharacterTokenizer


@pytest.fixture(scope="module")
def run(tiny_pixel_run, tmp_path_factory):
    return Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path_factory.mktemp("search") / "run"))


def embed(run, texts):
    return run.model.encode_texts(run.tokenizer(tf.constant(texts))).numpy()


def all_images(run, dataset, name="val"):
    split = dataset.split(name)
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(split.read_image(i)))) for i in range(len(split))])
    return run.model.encode_images(tf.constant(pixels, tf.float32)).numpy()


def keys(results):
    return [result.item.key for result in results]


@pytest.mark.slow
def test_a_text_finds_the_images_that_score_best(run, scenes):
    said = []
    results = search_run(run, scenes, Query("two shapes"), k=4, split="val", report=said.append)
    scores = all_images(run, scenes) @ embed(run, ["two shapes"])[0]
    order = np.argsort(-scores)[:4]
    assert keys(results) == [scenes.split("val").keys[row] for row in order]
    np.testing.assert_allclose([result.score for result in results], scores[order], atol=1e-5)
    assert [result.rank for result in results] == [1, 2, 3, 4]
    assert results[0].to_json()["key"] == results[0].item.key


def test_captions_can_be_searched(run, scenes):
    caption = scenes.split("val").captions[7]
    results = search_run(run, scenes, Query(caption), k=60, split="val", captions=True)
    found = {result.item.key: result for result in results}
    # The caption itself is at the top, but for captions that the model cannot tell from it.
    own = found[f"{scenes.split('val').keys[1]}#2"]
    assert own.item.caption == caption and own.score == pytest.approx(1, abs=1e-5)
    assert results[0].score == pytest.approx(own.score, abs=1e-5)


def test_an_image_finds_all_but_itself(run, scenes, tmp_path):
    split = scenes.split("val")
    file = tmp_path / "query.png"
    file.write_bytes(split.read_image(4))
    for name in (split.keys[4], str(file)):
        results = search_run(run, scenes, Query(image=name), k=99, split="val")
        assert len(results) == 11 and split.keys[4] not in keys(results)
        kept = search_run(run, scenes, Query(image=name), k=99, split="val", keep_query=True)
        assert len(kept) == 12 and kept[0].item.key == split.keys[4]
        assert kept[0].score == pytest.approx(1, abs=1e-5)
    # Captions of the query's own image are what one looks for.
    assert len(search_run(run, scenes, Query(image=split.keys[4]), k=99, split="val", captions=True)) == 60


def test_a_photo_is_turned_as_the_dataset_would_have_it(run, scenes, tmp_path):
    image = Image.open(io.BytesIO(scenes.split("val").read_image(0)))
    exif = Image.Exif()
    exif[0x0112] = 3  # to be turned by 180 degrees
    image.rotate(180).save(tmp_path / "photo.png", exif=exif)
    results = search_run(run, scenes, Query(image=str(tmp_path / "photo.png")), k=1, split="val", keep_query=True)
    assert results[0].item.key == scenes.split("val").keys[0]
    assert results[0].score == pytest.approx(1, abs=1e-5)


def test_arithmetic_is_equation_15(run, scenes):
    split = scenes.split("val")
    query = Query(image=split.keys[0], minus=("two", "shapes"), plus=("circle",))
    images = all_images(run, scenes)
    two, shapes, circle = embed(run, ["two", "shapes", "circle"])
    scores = images @ combine(images[0], [two, shapes], [circle], run.model.similarity.normalize)
    scores[0] = -np.inf
    order = np.argsort(-scores)
    results = search_run(run, scenes, query, k=5, split="val")
    assert keys(results) == [split.keys[row] for row in order[:5]]
    # The best six in the order of their distance to their mean, which is what their scores say.
    results = search_run(run, scenes, query, k=4, split="val", resort=6)
    sorted_anew, distances = resort_by_mean(images[order[:6]])
    assert keys(results) == [split.keys[row] for row in order[:6][sorted_anew][:4]]
    np.testing.assert_allclose([result.score for result in results], -distances[:4], atol=1e-5)
    # As many as are wanted are sorted: scores of two kinds would not fall.
    scores = [result.score for result in search_run(run, scenes, query, k=8, split="val", resort=6)]
    assert len(scores) == 8 and scores == sorted(scores, reverse=True)


def test_words_that_are_not_known(run, scenes):
    said = []
    search_run(run, scenes, Query("two zyzzyva shapes"), split="val", report=said.append)
    assert said == ["Warning: not known to the run: zyzzyva."]
    with pytest.raises(InvalidArgumentError, match="Not known: zyzzyva, qwrt"):
        search_run(run, scenes, Query("zyzzyva qwrt zyzzyva"), split="val")
    with pytest.raises(InvalidArgumentError, match="`plus`.*Not known: zyzzyva"):
        search_run(run, scenes, Query("two", plus=("zyzzyva",)), split="val")
    with raises_argument("query"):
        search_run(run, scenes, Query(" ?! "), split="val")


def test_what_a_run_reads_is_called_by_its_name(run, scenes, monkeypatch):
    def refusal(tokenizer, text):
        monkeypatch.setitem(vars(run), "tokenizer", tokenizer)
        with pytest.raises(InvalidArgumentError) as caught:
            search_run(run, scenes, Query(text), split="val")
        return str(caught.value)

    said = refusal(CharacterTokenizer(), "犬")
    assert "one character that the run was trained with" in said and "lists its characters" in said
    assert "Not known: 犬" in said and "word" not in said
    assert "at least one character" in refusal(CharacterTokenizer(), "  ")


def test_what_is_refused(run, scenes, tmp_path):
    for text, image in ((None, None), ("a", "b")):
        with raises_argument("query"):
            Query(text, image)
    for arguments in ({"k": 0}, {"resort": 0}):
        with pytest.raises(InvalidArgumentError, match="integer >= 1"):
            search_run(run, scenes, Query("two"), **arguments)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'val'"):
        search_run(run, scenes, Query("two"), split="vall")
    with pytest.raises(DataError, match=r"Cannot read the image 'missing\.png'.* key of an image"):
        search_run(run, scenes, Query(image="missing.png"))
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(DataError, match="unreadable"):
        search_run(run, scenes, Query(image=str(tmp_path / "broken.jpg")))


def test_a_run_without_a_backbone_takes_images_of_the_dataset_only(tiny_run, scenes, tmp_path):
    run = Run.open(shutil.copytree(tiny_run.path, tmp_path / "run"))
    split = scenes.split("val")
    results = search_run(run, scenes, Query(image=split.keys[2]), k=1, split="val", keep_query=True)
    assert results[0].item.key == split.keys[2] and results[0].score == pytest.approx(1, abs=1e-5)
    (tmp_path / "query.png").write_bytes(split.read_image(2))
    with pytest.raises(DataError, match="precomputed features"):
        search_run(run, scenes, Query(image=str(tmp_path / "query.png")), split="val")
