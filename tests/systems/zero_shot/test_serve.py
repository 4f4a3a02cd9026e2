"""Runs behind the signature `classify`, and runs that take names of classes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tiny import tiny
from vsemb import recipes
from vsemb.data.store import Dataset
from vsemb.errors import InvalidArgumentError
from vsemb.runs.serve import export_run, run_encoders
from vsemb.runs.train import train
from vsemb.systems.zero_shot.classify import classify_images, embed_classes


def test_what_is_exported_classifies_as_the_run_does(tiny_pixel_run, scenes, tmp_path):
    run = tiny_pixel_run
    split = scenes.split("val")
    classes = embed_classes(run, ["red circle", "blue square"], ["a {}", "one {}"])
    signatures = tf.saved_model.load(str(export_run(run, tmp_path / "model", extras=[classes.signature]))).signatures
    encoded = tf.constant([split.read_image(row) for row in range(4)])
    scores = signatures["classify"](image_bytes=encoded)["scores"].numpy()
    for row, found in enumerate(classify_images(run, split.keys[:4], classes, scenes)):
        wanted = [found.scores[name] for name in classes.names]
        np.testing.assert_allclose(scores[row], wanted, atol=1e-5)


def test_a_run_on_precomputed_features_cannot_classify_bytes(tiny_run, tmp_path):
    classes = embed_classes(tiny_run, ["red circle", "blue square"])
    with pytest.raises(InvalidArgumentError, match="no image network"):
        export_run(tiny_run, tmp_path / "model", extras=[classes.signature])
    assert not (tmp_path / "model").exists()


def test_the_card_of_a_run_on_names_of_classes(flowers_path, tmp_path):
    recipe = tiny(recipes.get("ds-sje-attributes"), "training.epochs=1", "batches.size=8")
    run = train(recipe, Dataset.open(flowers_path), tmp_path / "run")
    encoders = run_encoders(run, images=False)
    assert encoders.text_input.takes == "names of 60 classes"
    assert encoders.text_input.instance["text"] in encoders.tokenizer.vocabulary.words
