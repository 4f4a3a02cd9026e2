"""Captions of splits, files and keys by every kind of run that writes some, and the options each reads."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.errors import DataError
from vsemb.systems.captions.captioner import NeuralCaptioner
from vsemb.systems.captions.captioning import (
    CaptionOptions,
    caption_images,
    caption_split,
    open_captioning_run,
)
from vsemb.systems.captions.decoding import SearchOptions


@pytest.fixture(scope="module")
def written(caption_run, scenes):
    return caption_split(caption_run, scenes, "val", CaptionOptions(n_best=3))


def test_captions_of_a_split_are_the_captioners(written, caption_run, scenes) -> None:
    part = scenes.split("val")
    captioner = NeuralCaptioner(caption_run.model, caption_run.vocabulary, SearchOptions(n_best=3))
    features = caption_run.images_of(scenes, part).gather(np.arange(len(part)))
    texts, log_probs = captioner(tf.constant(features))
    assert len(written) == 12 and {len(captions) for captions in written} == {3}
    assert [[text for text, _ in captions] for captions in written] == [
        [text.decode() for text in row] for row in texts.numpy()
    ]
    values = [[log_prob for _, log_prob in captions] for captions in written]
    np.testing.assert_allclose(values, log_probs, rtol=1e-5)


def test_log_probabilities_are_those_of_the_model(written, caption_run, scenes) -> None:
    part = scenes.split("val")
    features = caption_run.images_of(scenes, part).gather(np.arange(len(part)))
    for row in (0, 7):
        texts, log_probs = zip(*written[row], strict=True)
        ids = caption_run.tokenizer(list(texts))
        inputs = {"image": np.repeat(features[[row]], len(texts), axis=0), "text": ids}
        likelihoods = caption_run.model.log_likelihoods(inputs).numpy().sum(axis=1)
        # Unfinished captions have no END; these are all shorter than the longest.
        np.testing.assert_allclose(log_probs, likelihoods, rtol=1e-4)
        assert list(log_probs) == sorted(log_probs, reverse=True)


def test_rows_wanted(written, caption_run, scenes) -> None:
    rows = np.array([7, 2])
    some = caption_split(caption_run, scenes, "val", CaptionOptions(n_best=3), rows=rows)
    for captions, row in zip(some, rows, strict=True):
        assert [text for text, _ in captions] == [text for text, _ in written[row]]
    assert caption_split(caption_run, scenes, "val", rows=rows[:0]) == []


def test_options_go_before_the_recipe(caption_run, scenes) -> None:
    rows = np.arange(4)

    def texts(**options):
        written = caption_split(caption_run, scenes, "val", CaptionOptions(**options), rows=rows)
        return [[text for text, _ in captions] for captions in written]

    def search(**options):
        return caption_run.recipe.captioner(caption_run, CaptionOptions(**options)).search

    greedy = texts(beam=1)
    # As many as the beam holds, where no number is given.
    assert {len(captions) for captions in greedy} == {1} and (search(beam=1).n_best, search().n_best) == (1, 5)
    assert texts(sample="greedy") == greedy
    drawn = texts(sample="random", seed=3, n_best=4, max_words=4)
    assert {len(captions) for captions in drawn} == {4}
    assert max(len(text.split()) for captions in drawn for text in captions) == 4
    assert texts(sample="random", seed=4, n_best=4, max_words=4) != drawn
    given = caption_run.recipe.search
    assert (search().beam, search().max_words) == (given.beam, given.max_words)
    other = search(max_words=2, length_penalty=5.0)
    assert (other.max_words, other.length_penalty, other.beam) == (2, 5.0, given.beam)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_best": 0}, "n_best"),
        ({"beam": 2, "n_best": 3}, "n_best"),
        ({"beam": 0}, "beam"),
        ({"max_words": 0}, "max_words"),
        ({"candidates": 9}, "candidates"),
        ({"sample": "loud"}, "sample"),
        ({"sample": "random", "beam": 3}, "beam"),
        ({"sample": "random", "length_penalty": 1.0}, "length_penalty"),
        ({"sample": "random", "max_words": 0}, "max_words"),
        ({"temperature": 0.5}, "temperature"),
        ({"seed": 5}, "seed"),
    ],
)
def test_options_that_are_not_read_are_refused(caption_run, options, name) -> None:
    with raises_argument(name):
        caption_run.recipe.captioner(caption_run, CaptionOptions(**options))


def test_runs_that_write_no_captions_are_refused(tmp_path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps(recipes.get("vsepp").to_json()))
    with pytest.raises(DataError, match="'vsepp'"):
        open_captioning_run(tmp_path)
    with pytest.raises(DataError, match="none"):
        open_captioning_run(tmp_path / "none")


def test_keys_are_captioned_from_features_and_files_are_not(written, caption_run, scenes, tmp_path) -> None:
    part, new = scenes.split("val"), tmp_path / "new.png"
    new.write_bytes(part.read_image(3))
    images = [part.keys[3], str(new), "nowhere.png", part.keys[0]]
    captioned = caption_images(caption_run, images, scenes, CaptionOptions(n_best=3))
    assert [result.error is None for result in captioned] == [True, False, False, True]
    assert "precomputed features" in captioned[1].error and "nowhere.png" in captioned[2].error
    for result, row in ((captioned[0], 3), (captioned[3], 0)):
        assert [text for text, _ in result.captions] == [text for text, _ in written[row]]
    assert captioned[0].to_json()["captions"][0] == {
        "text": written[3][0][0],
        "log_prob": pytest.approx(written[3][0][1], rel=1e-5),
    }
    assert captioned[1].to_json() == {"image": str(new), "error": captioned[1].error}


@pytest.mark.parametrize("sample", [None, "greedy"])
def test_a_broken_model_is_no_model_without_captions(caption_run, scenes, sample) -> None:
    broken = dataclasses.replace(caption_run)  # With a model of its own.
    broken.model.set_weights([np.full_like(value, np.nan) for value in broken.model.get_weights()])
    options, keys = CaptionOptions(sample=sample), scenes.split("val").keys[:2]
    captioned = caption_images(broken, keys, scenes, options)
    assert all("NaN" in result.error for result in captioned)
    if sample:
        with pytest.raises(DataError, match="NaN"):
            caption_split(broken, scenes, "val", options)


def test_features_of_a_split_are_looked_up_once(caption_run, scenes, monkeypatch) -> None:
    calls = []
    look_up = FeatureStore.positions
    monkeypatch.setattr(FeatureStore, "positions", lambda self, ids: calls.append(len(ids)) or look_up(self, ids))
    keys = scenes.split("val").keys[:3]
    assert all(result.error is None for result in caption_images(caption_run, keys, scenes))
    assert calls == [12]


@pytest.mark.slow
def test_files_of_a_run_on_regions_are_captioned_whole(region_caption_run, region_scenes, tmp_path) -> None:
    part, good, bad = region_scenes.split("val"), tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(part.read_image(2))
    bad.write_bytes(b"\x89PNG nothing")
    captioned = caption_images(region_caption_run, [str(good), str(bad), part.keys[2]], region_scenes)
    assert captioned[0].error is None and "unreadable" in captioned[1].error and captioned[2].error is None
    # The file and the key are one image; features of the cache are those of the served network, rounded.
    (first, second), (first_log, second_log) = zip(captioned[0].captions[0], captioned[2].captions[0], strict=True)
    assert first == second and first_log == pytest.approx(second_log, rel=1e-2)
    split = caption_split(region_caption_run, region_scenes, "val", rows=np.array([2]))
    assert split[0][0][0] == second
    # Files need no dataset.
    assert caption_images(region_caption_run, [str(good)])[0].captions == captioned[0].captions
