"""One way from bytes to embeddings: evaluation, search and the SavedModel agree."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.raising import raises_argument
from vsemb.data.features.compute import cache_features
from vsemb.evaluation import Embedder
from vsemb.exporting.contract import Contract, contract_path
from vsemb.image.backbones import BackboneConfig
from vsemb.runs.run import Run
from vsemb.runs.serve import export_run, model_facts
from vsemb.runs.train import train
from vsemb.searching.index import StaleIndexError
from vsemb.searching.storage import read_index


@pytest.fixture(scope="module")
def backbone_run(scenes_path, tiny_recipe, tmp_path_factory):
    """A run on features of a SmallConvNet over ten crops, and its dataset."""
    from vsemb.data.store import StoredDataset

    folder = tmp_path_factory.mktemp("backbone")
    dataset = StoredDataset.open(shutil.copytree(scenes_path, folder / "scenes"))
    config = BackboneConfig("SmallConvNet", size=32, crops=10)
    store = cache_features(dataset, config, weights="random")
    recipe = tiny_recipe.with_overrides([f'image.fingerprint="{store.fingerprint}"', "training.epochs=1"])
    return train(recipe, dataset, folder / "run"), dataset


def compare(run, dataset, exported, tolerance):
    """Compares evaluation's embeddings with search's and with those of the SavedModel."""
    split = dataset.split("val")
    encoded = tf.constant([split.read_image(row) for row in range(len(split))])
    texts = tf.constant(split.captions)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, split), len(split))
    captions = embedder.texts(*run.tokenizer.encode(split.captions))
    encoders = run.encoders()
    signatures = tf.saved_model.load(str(exported)).signatures
    for found in (encoders.image_rows(image_bytes=encoded), signatures["encode_image"](image_bytes=encoded)):
        assert found["valid"].numpy().all()
        np.testing.assert_allclose(found["embedding"], images, atol=tolerance)
    for found in (encoders.text_rows(text=texts), signatures["encode_text"](text=texts)):
        np.testing.assert_allclose(found["embedding"], captions, atol=1e-5)


@pytest.mark.slow
def test_a_run_from_pixels(tiny_pixel_run, scenes, exported):
    compare(tiny_pixel_run, scenes, exported / "1", 1e-5)


@pytest.mark.slow
def test_a_run_on_features_of_a_backbone_that_was_moved_exports_without_its_dataset(backbone_run, tmp_path):
    run, dataset = backbone_run
    moved = Run.open(shutil.copytree(run.path, tmp_path / "elsewhere"))
    gone = dataset.path.rename(tmp_path / "gone")
    try:
        path = export_run(moved, tmp_path / "models" / "moved", version=7)
    finally:
        gone.rename(dataset.path)
    assert path == tmp_path / "models" / "moved" / "7"
    # The cache was made in other batches, and the mean over crops adds up in another order.
    compare(run, dataset, path, 1e-5)


def test_a_run_on_precomputed_features_embeds_texts_only(tiny_run):
    encoders = tiny_run.encoders()
    assert tiny_run.image_input is None and encoders.encode_image is None
    assert [signature.name for signature in encoders.offered] == ["encode_text", "describe"]


@pytest.mark.slow
def test_an_export_in_bfloat16(tiny_pixel_run, scenes, exported, tmp_path):
    run, split = tiny_pixel_run, scenes.split("val")
    # What has been opened is shared.
    tokenizer = run.tokenizer
    other = run.computed_in("mixed_bfloat16")
    path = export_run(other, tmp_path / "models" / "rounded")
    exact, rounded = (tf.saved_model.load(str(each)).signatures for each in (exported / "1", path))
    encoded = [split.read_image(row) for row in range(len(split))]
    for name, given in (
        ("encode_text", {"text": tf.constant(split.captions)}),
        ("encode_image", {"image_bytes": tf.constant(encoded)}),
    ):
        wanted, found = (side[name](**given)["embedding"].numpy() for side in (exact, rounded))
        # Numbers of eight bits, and sums of them; a network of other weights is at 0.9 and less.
        assert (found != wanted).any() and (found * wanted).sum(axis=1).min() > 0.999
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    contracts = tmp_path / "models" / "contracts"
    assert Contract.read(contracts / "rounded.json").tolerance > Contract.read(contract_path(exported)).tolerance
    assert "mixed_bfloat16" in (contracts / "rounded.md").read_text()
    dtypes = [{layer.compute_dtype for layer in side.model._flatten_layers()} for side in (run, other)]
    assert dtypes[0] == {"float32"} and "bfloat16" in dtypes[1]
    assert other.tokenizer is tokenizer and other.fingerprint == run.fingerprint


def test_a_precision_that_does_not_exist(tiny_run):
    with raises_argument("precision"):
        tiny_run.computed_in("auto")


@pytest.mark.slow
def test_no_backbone_is_built_for_texts(backbone_run):
    assert Run.open(backbone_run[0].path).encoders(images=False).encode_image is None


def test_the_card_of_a_run_tells_what_it_takes(tiny_run, tiny_pixel_run):
    facts = [model_facts(run) for run in (tiny_run, tiny_pixel_run)]
    assert [bool(it.features_fingerprint) for it in facts] == [True, False]
    assert "trained too" in facts[1].images and "unknown network" in facts[0].images
    assert all("recall_sum" in it.figures[0].values and "epoch" in it.selection for it in facts)
    assert facts[1].figures[0].values["i2t_R@5"] == tiny_pixel_run.info["validation"]["i2t_R@5"] > 0


@pytest.mark.parametrize("name", ["mine.safetensors", "mine.onnx", "mine.tflite"])
def test_a_savedmodel_with_the_name_of_another_format_is_refused(tmp_path, name):
    with raises_argument("format"):
        vsemb.export(tmp_path / "run", tmp_path / name)
    assert not (tmp_path / name).exists()


def test_an_option_of_another_task_is_refused(tiny_run, tmp_path):
    with raises_argument("options"):
        export_run(tiny_run, tmp_path / "model", beam=3)
    assert not (tmp_path / "model").exists()


def test_an_index_of_another_run_is_refused(tiny_run, pixel_index, tmp_path):
    with pytest.raises(StaleIndexError, match="another run"):
        export_run(tiny_run, tmp_path / "model", index=read_index(pixel_index))
    assert not (tmp_path / "model").exists()
