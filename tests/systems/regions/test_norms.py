"""Norms of words and regions, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.regions.set_run import Images, Regions, SetRun
from vsemb.errors import DataError
from vsemb.systems.regions import region_search
from vsemb.systems.regions.cross_attention import CrossAttention
from vsemb.systems.regions.region_search import WordNorm, measure_norms, word_norms

WHOLE, LEFT, NONE = [0, 0, 1, 1], [0, 0, 0.5, 1], [0, 0, 0, 0]
WORDS = {"the": [0.0, 0.0], "dog": [3.0, 4.0], "runs": [1.0, 0.0], "kayak": [6.0, 8.0]}
# Lengths: image 0 has 1 and 5, image 1 has 2 and padding.
REGIONS = Regions(np.array([[[1, 0], [3, 4]], [[2, 0], [9, 9]]]), np.array([[WHOLE, LEFT], [WHOLE, NONE]]))
IMAGES = Images(val=[["the dog runs", "zyzzyva"], ["The dog!", "... the", "kayak the"]])


@pytest.fixture
def run(monkeypatch) -> SetRun:
    class Embedder:
        """The vectors of words, each longer by its place in the sentence: a mean has something to do."""

        def __init__(self, model) -> None:
            self.model = model

        def texts(self, ids, offsets):
            padded = np.zeros((len(offsets) - 1, max(np.diff(offsets).max(), 1)), np.int32)
            for row, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
                padded[row, : end - start] = ids[start:end]
            vectors = self.model.encode_texts(padded).numpy()
            return vectors * (1 + np.arange(vectors.shape[1]))[None, :, None]

    monkeypatch.setattr(region_search, "Embedder", Embedder)
    return SetRun(WORDS, REGIONS)


@pytest.mark.parametrize("block", [1, 2, 100])
def test_words_by_their_mean_norm(run, monkeypatch, block) -> None:
    monkeypatch.setattr(region_search, "_CAPTIONS", block)
    # "the" is a vector of zeros and a word all the same; "dog" stands second, and is 5 long, twice.
    assert word_norms(run, IMAGES, "val", 1) == [
        WordNorm("the", 0.0, 4),
        WordNorm("runs", 3.0, 1),
        WordNorm("dog", 10.0, 2),
        WordNorm("kayak", 10.0, 1),
    ]
    assert [word.word for word in word_norms(run, IMAGES, "val", 2)] == ["the", "dog"]


def test_the_mean_is_over_occurrences(run) -> None:
    images = Images(val=[["runs", "runs runs", "the runs"]])
    # Places 1, 1 and 2, and 2: lengths 1, 1, 2 and 2.
    assert word_norms(run, images, "val", 1)[1] == WordNorm("runs", 1.5, 4)


def test_both_ends_and_regions(run) -> None:
    norms = measure_norms(run, IMAGES, k=2, min_count=1)
    assert [word.word for word in norms.smallest] == ["the", "runs"]
    assert [word.word for word in norms.largest] == ["kayak", "dog"]
    assert [(region.key, region.region, region.score) for region in norms.regions] == [
        ("0.png", 1, 5.0),
        ("1.png", 0, 2.0),
    ]
    every = measure_norms(run, IMAGES, k=10, min_count=1, all_regions=True, parts=True)
    assert len(every.largest) == 4 and [region.score for region in every.regions] == [5.0]
    assert norms.to_json()["largest"][0] == {"word": "kayak", "norm": 10.0, "count": 1}


@pytest.mark.parametrize(("name", "value"), [("k", 0), ("min_count", 0), ("min_count", 5)])
def test_numbers_out_of_range(run, name, value) -> None:
    with raises_argument(name):
        measure_norms(run, IMAGES, **{"min_count": 1, name: value})


def test_the_most_frequent_word_is_named(run) -> None:
    with raises_argument("min_count"):
        word_norms(run, IMAGES, "val", 5)


def test_norms_that_are_not_finite(run) -> None:
    run.model.encode_texts = lambda ids: tf.fill([*ids.shape, 2], np.nan)
    with pytest.raises(DataError, match="NaN"):
        word_norms(run, IMAGES, "val", 1)


def test_runs_without_norms_and_without_regions(tiny_run, scenes) -> None:
    with pytest.raises(DataError, match="--variant paper"):
        measure_norms(SetRun(WORDS, REGIONS, CrossAttention()), IMAGES)
    with pytest.raises(DataError, match="vsemb train dvsa"):
        measure_norms(tiny_run, scenes)
    with pytest.raises(DataError, match="vsemb regions"):
        measure_norms(SetRun(WORDS, None), IMAGES)
