"""The strongest recipe: an ensemble over a network whose upper layers are trained from cached maps."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import vsemb
from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.runs.features import features, with_features
from vsemb.runs.train import train

LAYER = "block2_relu"


def small(name: str, *settings: str):
    return tiny(recipes.get("best", name), "image.size=32", *settings)


@pytest.fixture(scope="module")
def run(scenes_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("best")
    data = StoredDataset.open(shutil.copytree(scenes_path, folder / "scenes"))
    shutil.rmtree(data.path / "features")
    return train(
        small("top", f"image.layer={LAYER}", "initialization=cca", "image.networks=2"),
        data,
        folder / "run",
        backbone="SmallConvNet",
        weights="random",
    ), data


@pytest.mark.slow
def test_the_layers_above_are_trained_and_kept(run) -> None:
    found, _ = run
    config = BackboneConfig.from_json(found.info["backbone"])
    assert (config.layer, config.size, config.pooling) == (LAYER, 32, "flat")
    start = build_backbone(BackboneConfig("SmallConvNet", size=32), found.path / "backbone" / "backbone.weights.h5")
    top, other = (member.backbone for member in found.model.image_encoder.members)
    names = {weight.path.rsplit("/", 2)[-2] for weight in top.trainable_weights}
    assert names == {"block3_conv", "block3_norm"}
    base = next(layer for layer in start.layers if hasattr(layer, "layers"))
    moved = top.get_layer("top").get_layer("block3_conv").kernel - base.get_layer("block3_conv").kernel
    # Two epochs at a tenth of the learning rate.
    assert 0 < np.abs(moved).max() < 0.05
    assert all(weight.learning_rate_share == 0.1 for weight in top.trainable_weights)
    # Each network has the loss of its own members, so their equal weights part.
    kernels = [each.get_layer("top").get_layer("block3_conv").kernel for each in (top, other)]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-4


def test_networks_share_the_embedding_equally() -> None:
    with raises_argument("embedding_dim"):
        small("top", "image.networks=2").image.build(7, {}, seed=0, dtype="float32")


@pytest.mark.slow
def test_bytes_and_cached_maps_give_one_embedding(run) -> None:
    found, data = run
    split = data.split("val")
    pixels = vsemb.load(found.path).encode_images(split.read_images(np.arange(3)))
    images = found.recipe.image.images(split, found.recipe.image.open(data))
    maps = images.finish(images.gather(np.arange(3)), None)
    assert maps.shape[:2] == (3, 2)
    # Maps are stored with eleven bits, which five layers add up.
    np.testing.assert_allclose(found.model.encode_images(maps), pixels, rtol=1e-2, atol=1e-3)
    # The mean of an image and its mirror image, whose own embeddings differ.
    own, mirrored = (found.model.image_encoder(maps[:, view]) for view in range(2))
    assert np.abs(own - mirrored).max() > 1e-3
    mean = found.model.similarity.normalize((own + mirrored) / 2)
    np.testing.assert_allclose(found.model.hubs(mean, side="image"), pixels, rtol=1e-2, atol=1e-3)


@pytest.mark.slow
def test_without_mirror_images(run, tmp_path) -> None:
    _, data = run
    copy = StoredDataset.open(shutil.copytree(data.path, tmp_path / "scenes"))
    shutil.rmtree(copy.path / "features")
    features(copy, "SmallConvNet", "random", size=32, layer=LAYER, mirror=False)
    with pytest.raises(
        InvalidArgumentError, match="`image.mirror` must be false for features without mirror images; got True"
    ):
        small("top", f"image.layer={LAYER}").image.open(copy)
    whole = small("top", f"image.layer={LAYER}", "image.mirror=false").image
    assert whole.images(copy.split("val"), whole.open(copy)).gather(np.arange(2)).ndim == 2


def test_features_of_the_whole_network_are_refused(scenes_copy) -> None:
    shutil.rmtree(scenes_copy.path / "features")
    features(scenes_copy, "SmallConvNet", "random", size=32)
    with pytest.raises(DataError, match="block2_relu"):
        small("top", f"image.layer={LAYER}").image.open(scenes_copy)
    chosen = FeatureStore.find(scenes_copy).fingerprint
    with raises_argument("image.fingerprint"):
        small("top", f"image.layer={LAYER}", f"image.fingerprint={chosen}").image.open(scenes_copy)


@pytest.mark.slow
def test_maps_are_no_features_of_a_whole_network(run) -> None:
    _, data = run
    with pytest.raises(DataError, match="No features of a whole network in .*block2_relu"):
        small("frozen").image.open(data)


def test_the_recipe_names_size_and_pooling_of_its_features(scenes_copy) -> None:
    recipe = with_features(small("frozen"), scenes_copy, "SmallConvNet", "random")
    config = recipe.image.open(scenes_copy).backbone
    assert (config.size, config.pooling) == (32, "regional")
