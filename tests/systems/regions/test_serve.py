"""Runs of regions as they are searched and exported."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import Run
from vsemb.runs.indexing import build_index
from vsemb.runs.serve import export_run, model_facts


@pytest.mark.slow
def test_an_exported_run_of_regions(region_run, region_scenes, tmp_path):
    run, split = region_run, region_scenes.split("val")
    store = run.features_of(region_scenes)
    encoded = tf.constant([split.read_image(row) for row in range(len(split))])
    texts = tf.constant(split.captions[:4])
    signatures = tf.saved_model.load(str(export_run(run, tmp_path / "model"))).signatures
    wanted = run.model.encode_images(store.rows(split.ids)).numpy()
    images = signatures["encode_image"](image_bytes=encoded)
    assert images["valid"].numpy().all()
    np.testing.assert_allclose(images["boxes"], store.boxes(split.ids), atol=1e-6)
    # The cache keeps features in float16, which has 11 bits.
    np.testing.assert_allclose(images["embedding"], wanted, atol=2e-3 * np.abs(wanted).max())
    words = run.model.encode_texts(run.tokenizer(texts)).numpy()
    vectors = signatures["encode_text"](text=texts)["embedding"].numpy()
    np.testing.assert_allclose(vectors[:, : words.shape[1]], words, atol=1e-5)
    assert vectors.shape[1] == run.tokenizer.max_length and not vectors[:, words.shape[1] :].any()
    inputs = {"image_bytes": encoded[:4], "text": texts, "affinity": tf.constant([0.0, 0.1, 0.2, 3.0])}
    values = {name: value.numpy() for name, value in signatures["align"](**inputs).items()}
    # Without an affinity each word has the region that fits it best, or one of several.
    count = int((values["regions"][0] >= 0).sum())
    regions = images["embedding"][0].numpy()
    scores = words[0, :count] @ regions[regions.any(axis=1)].T
    np.testing.assert_allclose(values["scores"][0, :count], scores.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(scores[np.arange(count), values["regions"][0, :count]], scores.max(axis=1))
    assert len({*values["regions"][3].tolist()} - {-1}) == 1


@pytest.mark.slow
def test_a_run_that_reads_the_whole_image_alone(region_run, region_scenes, tmp_path):
    moved = Run.open(shutil.copytree(region_run.path, tmp_path / "run"))
    recipe = moved.recipe.with_overrides(["image.max_regions=1"])
    alone = dataclasses.replace(moved, recipe=recipe)
    image = tf.constant([region_scenes.split("val").read_image(0)])
    encoders = region_run.encoders()
    found, whole = encoders.encode_image(image), alone.encoders().encode_image(image)
    store, split = region_run.features_of(region_scenes), region_scenes.split("val")
    wanted = region_run.model.encode_images(store.rows(split.ids[:1])).numpy()
    assert found["valid"].numpy().tolist() == [True]
    np.testing.assert_allclose(found["boxes"], store.boxes(split.ids[:1]), atol=1e-6)
    np.testing.assert_allclose(found["embedding"], wanted, atol=2e-3 * np.abs(wanted).max())
    said = encoders.encode_text(tf.constant(split.captions[:1]))["embedding"]
    words = region_run.model.encode_texts(region_run.tokenizer(split.captions[:1]))
    np.testing.assert_allclose(said[:, : words.shape[1]], words, atol=1e-5)
    assert whole["boxes"].numpy().tolist() == [[[0, 0, 1, 1]]]
    np.testing.assert_allclose(whole["embedding"], found["embedding"][:, :1], atol=1e-5)
    assert "of the whole image alone" in model_facts(alone).images
    assert "of 6 regions at most (grid)" in model_facts(region_run).images


def test_a_run_of_regions_of_an_unknown_network_embeds_texts_only(region_run, tmp_path):
    moved = Run.open(shutil.copytree(region_run.path, tmp_path / "run"))
    shutil.rmtree(moved.path / "backbone")
    assert moved.image_input is None and list(moved.encoders().functions) == ["encode_text", "describe"]


def test_a_run_of_regions_exports_no_index(region_run, tiny_run, scenes, tmp_path):
    index = build_index(tiny_run, scenes, "val", out=tmp_path / "index")
    with raises_argument("index"):
        export_run(region_run, tmp_path / "model", index=index)
    assert not (tmp_path / "model").exists()
