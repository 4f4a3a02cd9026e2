"""One way from bytes to embeddings: evaluation, search and the SavedModel agree."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

from vsemb.data.features import cache_features
from vsemb.errors import InvalidArgumentError
from vsemb.evaluation import Embedder
from vsemb.image.backbones import BackboneConfig
from vsemb.recipes.classify import classify_images, embed_classes
from vsemb.recipes.run import Run
from vsemb.recipes.serve import export_run, image_input, model_facts, run_encoders
from vsemb.recipes.train import train


@pytest.fixture(scope="module")
def backbone_run(scenes_path, tiny_recipe, tmp_path_factory):
    """A run on features of a SmallConvNet over ten crops, and its dataset."""
    from vsemb.data.store import Dataset

    folder = tmp_path_factory.mktemp("backbone")
    dataset = Dataset.open(shutil.copytree(scenes_path, folder / "scenes"))
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    store = cache_features(dataset, config, weights="random")
    recipe = tiny_recipe.with_overrides([f'image.features="{store.fingerprint}"', "training.epochs=1"])
    return train(recipe, dataset, folder / "run"), dataset


def compare(run, dataset, out, tolerance):
    """Compares evaluation's embeddings with search's and with those of the SavedModel."""
    split = dataset.split("val")
    encoded = tf.constant([split.read_image(row) for row in range(len(split))])
    texts = tf.constant(split.captions)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, split), len(split))
    captions = embedder.texts(*run.tokenizer.encode(split.captions))
    encoders = run_encoders(run)
    signatures = tf.saved_model.load(str(export_run(run, out))).signatures
    for found in (encoders.encode_image(encoded), signatures["encode_image"](image_bytes=encoded)):
        assert found["valid"].numpy().all()
        np.testing.assert_allclose(found["embedding"], images, atol=tolerance)
    for found in (encoders.encode_text(texts), signatures["encode_text"](text=texts)):
        np.testing.assert_allclose(found["embedding"], captions, atol=1e-5)


def test_a_run_from_pixels(tiny_pixel_run, scenes, tmp_path):
    compare(tiny_pixel_run, scenes, tmp_path / "model", 1e-5)


def test_a_run_on_features_of_a_backbone(backbone_run, tmp_path):
    # The cache was made in other batches, and the mean over crops adds up in another order.
    compare(*backbone_run, tmp_path / "model", 1e-5)


def test_a_run_on_precomputed_features_embeds_texts_only(tiny_run, tmp_path):
    assert image_input(tiny_run) is None and run_encoders(tiny_run).encode_image is None
    path = export_run(tiny_run, tmp_path / "model")
    assert "encode_image" not in tf.saved_model.load(str(path)).signatures


def test_no_backbone_is_built_for_texts(backbone_run):
    assert run_encoders(backbone_run[0], images=False).encode_image is None


@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_a_run_that_was_moved_exports_without_its_dataset(kind, tiny_pixel_run, backbone_run, tmp_path):
    original, dataset = (tiny_pixel_run, None) if kind == "pixels" else backbone_run
    moved = Run.open(shutil.copytree(original.path, tmp_path / "elsewhere"))
    gone = tmp_path / "gone"
    if dataset is not None:
        dataset.path.rename(gone)
    try:
        path = export_run(moved, tmp_path / "models" / "moved", version=7)
    finally:
        if dataset is not None:
            gone.rename(dataset.path)
    assert path == tmp_path / "models" / "moved" / "7"
    assert "encode_image" in tf.saved_model.load(str(path)).signatures


def test_what_is_exported_classifies_as_the_run_does(backbone_run, tmp_path):
    run, dataset = backbone_run
    split = dataset.split("val")
    classes = embed_classes(run, ["red circle", "blue square"], ["a {}", "one {}"])
    signatures = tf.saved_model.load(str(export_run(run, tmp_path / "model", classes=classes))).signatures
    encoded = tf.constant([split.read_image(row) for row in range(4)])
    scores = signatures["classify"](image_bytes=encoded)["scores"].numpy()
    for row, found in enumerate(classify_images(run, split.keys[:4], classes, dataset)):
        wanted = [found.scores[name] for name in classes.names]
        np.testing.assert_allclose(scores[row], wanted, atol=1e-5)


def test_a_run_on_precomputed_features_cannot_classify_bytes(tiny_run, tmp_path):
    classes = embed_classes(tiny_run, ["red circle", "blue square"])
    with pytest.raises(InvalidArgumentError, match="no image network"):
        export_run(tiny_run, tmp_path / "model", classes=classes)
    assert not (tmp_path / "model").exists()


def test_the_card_of_a_run_tells_what_it_takes(tiny_run, tiny_pixel_run, tree_run):
    facts = [model_facts(run) for run in (tiny_run, tiny_pixel_run, tree_run)]
    assert [it.texts for it in facts] == ["", "", ""]
    assert [bool(it.features_fingerprint) for it in facts] == [True, False, True]
    assert [bool(it.parser) for it in facts] == [False, False, True]
    assert "trained too" in facts[1].images and "unknown network" in facts[0].images
    assert all(it.metrics.keys() == {"recall_sum"} and "epoch" in it.selection for it in facts)


def test_the_card_of_a_run_on_names_of_classes(flowers_path, tmp_path):
    from vsemb import recipes
    from vsemb.data.store import Dataset

    recipe = recipes.get("ds-sje-attributes").with_overrides(["training.epochs=1", "batches.size=8"])
    facts = model_facts(train(recipe, Dataset.open(flowers_path), tmp_path / "run"))
    assert facts.texts == "names of 60 classes" and "unknown class" in facts.notes[0]
