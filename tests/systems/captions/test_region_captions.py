"""Captions of regions: which are kept, and that they are what the model says of the cache's features."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.raising import raises_argument
from vsemb import Dataset
from vsemb.drawing.pictures import pixel_box
from vsemb.errors import DataError
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.decoding import SearchOptions
from vsemb.systems.captions.region_captions import caption_regions, choose_regions


def slow_choice(boxes, scores, texts, most: int, overlap: float) -> list[int]:
    """The same one box at a time, by the number of whole pixels that two boxes share."""
    shown = np.zeros((len(boxes), 20, 20), bool)
    for pixels, (x, y, width, height) in zip(shown, boxes, strict=True):
        pixels[y : y + height, x : x + width] = True
    chosen: list[int] = []
    for row in sorted(range(len(boxes)), key=lambda each: (-scores[each], each)):
        shares = [(shown[row] & shown[other]).sum() / (shown[row] | shown[other]).sum() for other in chosen]
        new = texts[row] and texts[row] not in [texts[other] for other in chosen]
        if new and all(share <= overlap for share in shares) and len(chosen) < most:
            chosen.append(row)
    return chosen


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_choosing_against_counted_pixels(overlap) -> None:
    random = np.random.default_rng(5)
    for _ in range(40):
        low = random.integers(0, 14, size=(8, 2))
        boxes = np.concatenate([low, random.integers(1, 6, size=(8, 2))], axis=1)
        scores = random.integers(-5, 0, size=8).astype(float)
        texts = random.choice(["", "a", "b", "c", "d", "e", "f"], size=8).tolist()
        for most in (1, 3, 8):
            assert choose_regions(boxes, scores, texts, most, overlap) == slow_choice(
                boxes, scores, texts, most, overlap
            )


def test_choosing_among_none() -> None:
    assert choose_regions(np.zeros((0, 4)), [], [], 3) == []


@pytest.fixture(scope="module")
def dataset(region_caption_run) -> Dataset:
    return Dataset.open(region_caption_run.data_path)


@pytest.mark.slow
def test_captions_are_the_model_s_of_the_cached_regions(region_caption_run, dataset) -> None:
    val, row = dataset.split("val"), 3
    store = region_caption_run.features_of(dataset)
    # With all regions chosen, but one that says what a likelier one says.
    whole, parts = (
        caption_regions(region_caption_run, val.keys[row], dataset, most=99, beam=3, overlap=1.0, parts=parts)
        for parts in (False, True)
    )
    (boxes,) = store.boxes(val.ids[[row]])
    real = np.flatnonzero(np.any(boxes != 0, axis=1))
    captioner = NeuralCaptioner(region_caption_run.model, region_caption_run.vocabulary, SearchOptions(beam=3))
    texts, log_probs = captioner(tf.constant(store.rows(val.ids[[row]])[0, real]))
    wanted = [text.decode() for text in texts.numpy()[:, 0]]
    assert {caption.text for caption in whole.captions} == set(wanted)
    # The whole image is the first region.
    assert {caption.text for caption in parts.captions} == set(wanted[1:])
    assert all(caption.region > 0 for caption in parts.captions)
    for caption in (*whole.captions, *parts.captions):
        place = real.tolist().index(caption.region)
        assert caption.text == wanted[place] and caption.text
        assert caption.box == pixel_box(boxes[caption.region], whole.picture.size)
        # The cache holds float16.
        np.testing.assert_allclose(caption.log_prob, log_probs.numpy()[place, 0], rtol=1e-3, atol=1e-3)
        words = len(caption.text.replace("'s", " 's").split())
        np.testing.assert_allclose(caption.score, caption.log_prob / (words + 1))
    scores = [caption.score for caption in whole.captions]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_few_are_drawn_and_written(region_caption_run, dataset, tmp_path) -> None:
    val = dataset.split("val")
    path = tmp_path / "image\udcff.png"
    with Image.open(io.BytesIO(val.read_image(1))) as image:
        image.save(path)
    regions = caption_regions(region_caption_run, str(path), most=1)
    assert len(regions.captions) == 1
    assert regions.drawn(side=64).size[0] > 64
    plain = json.loads(json.dumps(regions.to_json()))
    assert plain["image"].endswith("image?.png") and plain["captions"][0]["text"] == regions.captions[0].text
    # A file says what its key says, be there a dataset or not.
    assert caption_regions(region_caption_run, val.keys[1], dataset, most=1).captions == regions.captions


@pytest.mark.slow
def test_a_broken_model_is_refused(region_caption_run, dataset) -> None:
    broken = dataclasses.replace(region_caption_run)  # With a model of its own.
    broken.model.set_weights([np.full_like(value, np.nan) for value in broken.model.get_weights()])
    with pytest.raises(DataError, match="NaN"):
        caption_regions(broken, dataset.split("val").keys[0], dataset, beam=1)


@pytest.mark.slow
def test_refusals(region_caption_run, caption_run, dataset, tmp_path) -> None:
    key = dataset.split("val").keys[0]
    with pytest.raises(DataError, match="'multimodal-rnn'.*multimodal-rnn-regions"):
        caption_regions(caption_run, key, dataset)
    with raises_argument("most"):
        caption_regions(region_caption_run, key, dataset, most=0)
    for overlap in (-0.1, float("nan")):
        with raises_argument("overlap"):
            caption_regions(region_caption_run, key, dataset, overlap=overlap)
    with raises_argument("beam"):
        caption_regions(region_caption_run, key, dataset, beam=0)
    with raises_argument("boxes"):
        caption_regions(region_caption_run, key, dataset, boxes="boxes.json")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG nothing")
    for image in (str(tmp_path / "bad.png"), "missing"):
        with pytest.raises(DataError, match=re.escape(image)):
            caption_regions(region_caption_run, image, dataset)
