"""Aligning a sentence with an image: what the served function is asked, phrases, candidates, refusals."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from tests.systems.regions.set_run import Encoders, Images, Regions, SetRun
from vsemb.errors import DataError
from vsemb.systems.regions import aligning, candidates
from vsemb.systems.regions.aligning import align_image
from vsemb.systems.regions.region_store import RegionConfig

WORDS = {"a": [0.0], "brown": [0.0], "dog": [0.0], "runs": [0.0]}
BOXES = np.array([[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.5], [0, 0, 0.1, 0.2], [0, 0, 0, 0]], np.float32)
ANSWER = {
    "boxes": BOXES,
    "words": np.array(["a", "brown", "dog", "runs", *[""] * 4], object),
    "regions": np.array([1, 1, 1, 0, -1, -1, -1, -1]),
    "scores": np.array([0.25, 1.5, 2.0, -0.5, 0, 0, 0, 0], np.float32),
    "valid": np.array(True),
}
SENTENCE = "A brown dog runs."
GRID = RegionConfig()


@pytest.fixture
def asked(monkeypatch):
    """Makes a run, and what it is served with, answer as above."""

    def make(config: RegionConfig | None = GRID, store: Regions | None = None, **answer):
        run = SetRun(WORDS, store)
        encoders = Encoders(run, ANSWER | answer)
        if config is not None:
            monkeypatch.setattr(aligning, "kept_regions", lambda path: config)
        monkeypatch.setattr(run, "encoders", lambda: encoders)
        return run, encoders

    return make


@pytest.fixture
def image(tmp_path) -> str:
    path = tmp_path / "dog.png"
    Image.new("RGB", (80, 40), "green").save(path)
    return str(path)


def test_phrases_and_their_boxes_in_pixels(asked, image) -> None:
    run, encoders = asked(RegionConfig())
    aligned = align_image(run, image, SENTENCE, affinity=0.5)
    assert [(each.words, each.region, each.box, each.scores) for each in aligned.phrases] == [
        (("a", "brown", "dog"), 1, (20, 20, 40, 20), (0.25, 1.5, 2.0)),
        (("runs",), 0, (0, 0, 80, 40), (-0.5,)),
    ]
    assert aligned.phrases[0].score == 3.75 and aligned.affinity == 0.5
    encoded, text, affinity = encoders.asked
    assert Image.open(io.BytesIO(encoded[0])).size == (80, 40)
    assert text[0].decode() == SENTENCE and affinity.tolist() == [0.5] and affinity.dtype == np.float32
    written = json.loads(json.dumps(aligned.to_json()))
    assert written["phrases"][1] == {"words": ["runs"], "region": 0, "box": [0, 0, 80, 40], "score": -0.5}
    # Padding is no box.
    assert list(written["boxes"]) == ["0", "1", "2"] and written["boxes"]["2"] == [0, 0, 8, 8]
    assert aligned.drawn().width == 512


def test_each_word_is_by_itself_unless_an_affinity_is_given(asked, image) -> None:
    run, encoders = asked()
    assert align_image(run, image, SENTENCE).affinity == 0
    assert align_image(run, image, SENTENCE, affinity=0.25).affinity == 0.25
    assert encoders.asked[2].tolist() == [0.25]
    for wrong in (-1, float("nan"), float("inf")):
        with raises_argument("affinity"):
            align_image(run, image, SENTENCE, affinity=wrong)


def test_an_image_of_the_dataset(asked) -> None:
    run, encoders = asked()
    images = Images(train=[["a"]], val=[["a"], ["a"]])
    aligned = align_image(run, "2.png", SENTENCE, images)
    assert encoders.asked[0][0] == images.split("val").read_image(1)
    assert aligned.phrases[1].box == (0, 0, 20, 10)
    with pytest.raises(DataError, match=r"nowhere\.png"):
        align_image(run, "nowhere.png", SENTENCE, images)
    with pytest.raises(DataError, match=r"2\.png"):
        align_image(run, "2.png", SENTENCE)


def test_images_and_sentences_that_cannot_be_read(asked, image, tmp_path) -> None:
    run, _ = asked()
    said: list[str] = []
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad\.png"):
        align_image(run, str(tmp_path / "bad.png"), SENTENCE)
    for sentence in ("", "...", "zyzzyva", "a \udcff dog"):
        with raises_argument("sentence"):
            align_image(run, image, sentence)
    aligned = align_image(run, image, "a zyzzyva dog", report=said.append)
    assert said == ["Warning: not known to the run: zyzzyva."]
    aligned.to_json()["sentence"].encode()
    run, _ = asked(scores=np.full(8, np.nan, np.float32))
    with pytest.raises(DataError, match="NaN"):
        align_image(run, image, SENTENCE)
    run, _ = asked(valid=np.array(False))
    with pytest.raises(DataError):
        align_image(run, image, SENTENCE)


def test_a_sentence_that_is_cut_is_said_to_be(asked, image) -> None:
    said: list[str] = []
    full = {"words": np.array(["dog"] * 8, object), "regions": np.ones(8, np.int64)}
    run, _ = asked(**full)
    align_image(run, image, "dog " * 8, report=said.append)
    assert said == []
    align_image(run, image, "dog " * 9, report=said.append)
    assert said == ["Warning: the run reads the first 8 words."]
    # Words are what the run takes for words, with blanks between them or not.
    align_image(run, image, "dog ! " * 8, report=said.append)
    assert len(said) == 1
    align_image(run, image, "dog," * 9, report=said.append)
    assert len(said) == 2


CANDIDATES = np.array([[[0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0]]], np.float32)


def results(path, *boxes, **more) -> str:
    entries = [{"image_id": 7, "category_id": 1, "bbox": box, "score": score} for box, score in boxes]
    path.write_text(json.dumps([entry | more for entry in entries]))
    return str(path)


def test_boxes_of_a_detector(asked, image, tmp_path) -> None:
    run, encoders = asked(RegionConfig("detections"), Regions(np.zeros((1, 3, 1)), CANDIDATES))
    path = results(tmp_path / "boxes.json", ([8, 4, 8, 8], 0.5), ([-40, 0, 80, 20], 0.9))
    said: list[str] = []
    align_image(run, image, SENTENCE, boxes=path, report=said.append)
    # Fractions of 80 x 40 pixels, the best first, inside the image.
    np.testing.assert_allclose(encoders.asked[3], [[[0, 0, 0.5, 0.5], [0.1, 0.1, 0.1, 0.2]]], atol=1e-6)
    assert len(said) == 1 and "reach out of their image" in said[0]
    # Of an image of the dataset those of its cache; the whole image is added by the model.
    align_image(run, "0.png", SENTENCE, Images(val=[["a"]]))
    assert encoders.asked[3].tolist() == [[[0.5, 0.5, 0.5, 0.5]]]
    with pytest.raises(DataError, match="`boxes`"):
        align_image(run, image, SENTENCE)
    with pytest.raises(DataError, match=r"nowhere\.json"):
        align_image(run, image, SENTENCE, boxes=tmp_path / "nowhere.json")
    (tmp_path / "two.json").write_text(json.dumps([{"image_id": n, "bbox": [0, 0, 9, 9], "score": 1} for n in (1, 2)]))
    with pytest.raises(DataError, match=r"two\.json"):
        align_image(run, image, SENTENCE, boxes=tmp_path / "two.json")


def test_boxes_are_of_the_image_before_it_was_shrunk(asked, image, tmp_path) -> None:
    run, encoders = asked(RegionConfig("detections"))
    images = Images(val=[["a"]])
    images.manifest["writing"] = {"max_side": 20}
    path = results(tmp_path / "boxes.json", ([40, 20, 40, 20], 0.5))
    aligned = align_image(run, image, SENTENCE, images, boxes=path)
    assert aligned.picture.size == (20, 10) and aligned.to_json()["width"] == 20
    np.testing.assert_allclose(encoders.asked[3], [[[0.5, 0.5, 0.5, 0.5]]], atol=1e-6)


def test_boxes_that_nobody_asked_for(asked, image, tmp_path) -> None:
    run, _ = asked(RegionConfig("grid"))
    with raises_argument("boxes"):
        align_image(run, image, SENTENCE, boxes=tmp_path / "boxes.json")


def test_selective_search_looks_at_the_image(asked, image, monkeypatch) -> None:
    monkeypatch.setattr(
        candidates, "selective_search", lambda pixels: np.full((2, 4), pixels.shape[0] / 400, np.float32)
    )
    run, encoders = asked(RegionConfig("selective-search"))
    align_image(run, image, SENTENCE)
    np.testing.assert_allclose(encoders.asked[3], np.full((1, 2, 4), 0.1), atol=1e-6)
    # An image of a dataset that has no such regions is searched too.
    align_image(run, "0.png", SENTENCE, Images(val=[["a"]]))
    assert encoders.asked[3].shape == (1, 2, 4)


def test_runs_that_cannot_align(asked, image, tiny_run, scenes) -> None:
    with pytest.raises(DataError, match="vsemb train dvsa"):
        align_image(tiny_run, scenes.split("val").keys[0], SENTENCE, scenes)
    run, _ = asked(None)
    with pytest.raises(DataError, match="vsemb regions"):
        align_image(run, image, SENTENCE)
