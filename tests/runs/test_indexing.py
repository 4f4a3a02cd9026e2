"""Indexes of runs: what is embedded, how, and when an old one is not used."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from vsemb.data import synthetic as generator
from vsemb.data.features.compute import write_precomputed
from vsemb.data.writing.writer import write_dataset
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.evaluation import Embedder
from vsemb.runs.indexing import DatasetItems, build_index, index_directory, open_index
from vsemb.runs.run import Run
from vsemb.searching.backends.exact import Exact


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of the run, to write indexes into."""
    return Run.open(shutil.copytree(tiny_run.path, tmp_path / "run"))


def test_images_of_all_splits_from_cached_features(run, scenes):
    index = build_index(run, scenes)
    assert index.source.splits == ("train", "val", "test") and len(index) == 72
    parts = [scenes.split(name) for name in index.source.splits]
    assert index.ids.tolist() == np.concatenate([part.ids for part in parts]).tolist()
    assert index.keys == [key for part in parts for key in part.keys]
    wanted = Embedder(run.model).images(run.images_of(scenes, parts[1]), 12)
    np.testing.assert_allclose(index.embeddings[48:60], wanted, atol=1e-6)


@pytest.mark.slow
def test_images_from_pixels(tiny_pixel_run, scenes, tmp_path):
    run = Run.open(shutil.copytree(tiny_pixel_run.path, tmp_path / "run"))
    index = build_index(run, scenes, "val")
    split = scenes.split("val")
    wanted = Embedder(run.model).images(run.images_of(scenes, split), len(split))
    np.testing.assert_allclose(index.embeddings, wanted, atol=1e-5)


def test_captions_carry_their_images_id_and_their_own_number(run, scenes):
    index = build_index(run, scenes, "val", "text")
    split = scenes.split("val")
    assert len(index) == 60 and index.ids.tolist() == np.repeat(split.ids, 5).tolist()
    assert index.keys[:6] == [*(f"{split.keys[0]}#{i}" for i in range(5)), f"{split.keys[1]}#0"]
    wanted = run.model.encode_texts(run.tokenizer(tf.constant(split.captions)))
    np.testing.assert_allclose(index.embeddings, wanted, atol=1e-5)
    items = DatasetItems(scenes, ("val",), "text")
    assert [item.key for item in items] == index.keys
    assert [item.caption for item in items] == split.captions


def test_an_image_is_shown_with_its_longest_caption(scenes):
    split = scenes.split("val")
    item = DatasetItems(scenes, ("val",), "image")[0]
    assert item.image_key == item.key == split.keys[0] and item.caption == max(split.captions_of(0), key=len)


def test_built_once_and_anew_when_stale(run, scenes, tmp_path):
    said: list[str] = []
    first = open_index(run, scenes, "val", report=said.append)
    assert len(said) == 1 and "No index" in said[0]
    again = open_index(run, scenes, "val", report=said.append)
    assert len(said) == 1
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    # The same weights and another dataset of the same name.
    records = generator.generate({"val": 5}, seed=6, image_size=32)
    source = {"format": "scenes", "path_name": "", "sha256": {}, "options": {}}
    other = write_dataset(records, tmp_path / "other", name="scenes", source=source)
    write_precomputed(other, other.split("val").ids, np.ones((5, 16), np.float32))
    assert len(open_index(run, other, "val", report=said.append)) == 5
    assert len(said) == 2 and "another dataset" in said[1] and said[1].endswith("Embedding anew.")
    # The same dataset and other weights; what is made anew is stored as it was.
    build_index(run, scenes, "val", backend=Exact("int8"))
    del said[:]
    weight = run.model.text_encoder.trainable_weights[0]
    weight.assign(weight + 1)
    run.model.save_weights(run.path / "checkpoints" / "best.weights.h5")
    anew = open_index(Run.open(run.path), scenes, "val", report=said.append)
    assert len(said) == 1 and "another run" in said[0]
    assert anew.backend == Exact("int8")


def test_the_fingerprint_is_the_runs_and_not_its_places(run, tiny_run):
    assert Run.open(run.path).fingerprint == tiny_run.fingerprint
    recipe = run.recipe.with_overrides(["text.tokenizer.max_length=9"])
    (run.path / "recipe.json").write_text(json.dumps(recipe.to_json()))
    assert Run.open(run.path).fingerprint != tiny_run.fingerprint


def test_names_of_datasets_and_splits(run, scenes):
    # Names of datasets may hold slashes (tfds has such).
    odd = type(scenes)(scenes.path, scenes.manifest | {"name": "coco/2014 v1"})
    assert index_directory(run, odd, "all", "image") == run.path / "index" / "coco_2014_v1-all-images"
    with pytest.raises(InvalidArgumentError, match="Did you mean 'val'"):
        open_index(run, scenes, "vall")
    assert not (run.path / "index").exists()


def test_a_damaged_index_is_an_error_that_building_mends(run, scenes):
    build_index(run, scenes, "val")
    (index_directory(run, scenes, "val", "image") / "ids.npy").write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        open_index(run, scenes, "val")
    assert len(build_index(run, scenes, "val")) == 12
