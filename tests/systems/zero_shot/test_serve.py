"""Runs behind the signature `classify`, and runs that take names of classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.runs.serve import export_run
from vsemb.systems.zero_shot.classify import classify_images, embed_classes


@pytest.mark.slow
def test_what_is_exported_classifies_as_the_run_does(tiny_pixel_run, scenes, tmp_path):
    run = tiny_pixel_run
    split = scenes.split("val")
    classes = replace(embed_classes(run, ["red circle", "blue square"], ["a {}", "one {}"]), names=("Katze", "鳥"))
    signatures = tf.saved_model.load(str(export_run(run, tmp_path / "model", extras=[classes.signature]))).signatures
    encoded = tf.constant([*(split.read_image(row) for row in range(4)), b"no image"])
    answered = {name: value.numpy() for name, value in signatures["classify"](image_bytes=encoded).items()}
    assert answered["classes"].tolist() == [[name.encode() for name in classes.names]] * 5
    assert answered["valid"].tolist() == [True] * 4 + [False] and not answered["scores"][4].any()
    for row, found in enumerate(classify_images(run, split.keys[:4], classes, scenes)):
        wanted = [found.scores[name] for name in classes.names]
        np.testing.assert_allclose(answered["scores"][row], wanted, atol=1e-5)


def test_a_run_on_precomputed_features_cannot_classify_bytes(tiny_run, tmp_path):
    classes = embed_classes(tiny_run, ["red circle", "blue square"])
    with raises_argument("classes"):
        export_run(tiny_run, tmp_path / "model", extras=[classes.signature])
    assert not (tmp_path / "model").exists()


def test_the_card_of_a_run_on_names_of_classes(sje_run):
    encoders = sje_run("attributes").encoders(images=False)
    assert encoders.text_input.takes == "names of 60 classes"
    assert encoders.text_input.instance["text"] in encoders.tokenizer.vocabulary.words
