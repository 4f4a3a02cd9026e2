"""Networks of runs as the start of another training."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.data.features.store import FeatureStore
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.image.backbones import BackboneConfig
from vsemb.runs.fine_tune import run_backbone, starting_weights, with_backbone
from vsemb.runs.run import Run
from vsemb.runs.train import train

INFO = {"feature_dim": None}


def same_weights(one, other) -> None:
    for first, second in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(first, second)


def start(recipe):
    """The model that a training starts from."""
    with starting_weights(recipe) as starting:
        return starting.build(30, INFO, "float32")


@pytest.fixture
def other_recipe(tiny_recipe):
    """A recipe of another space than the run's."""
    return tiny_recipe.with_overrides(["embedding_dim=12", "similarity=order"])


def test_another_training_starts_from_the_network_of_a_run(tiny_pixel_run: Run, other_recipe, scenes):
    trained = tiny_pixel_run.model.image_encoder.backbone
    recipe = with_backbone(other_recipe, scenes, str(tiny_pixel_run.path))
    assert (recipe.image.backbone, recipe.image.size) == ("SmallConvNet", 32)
    assert not recipe.image.frozen_statistics and not recipe.image.augment
    recipe = recipe.with_overrides(["image.pooling=flat"])
    same_weights(start(recipe).image_encoder.backbone, trained)


def test_all_else_is_drawn_from_the_seed_of_the_new_recipe(tiny_pixel_run: Run, other_recipe, scenes):
    recipe = with_backbone(other_recipe, scenes, str(tiny_pixel_run.path))
    one, other = (start(recipe.with_overrides([f"training.seed={seed}"])) for seed in (1, 2))
    same_weights(one.image_encoder.backbone, other.image_encoder.backbone)
    assert np.abs(one.text_encoder.words.table.numpy() - other.text_encoder.words.table.numpy()).max() > 0.01
    kernels = [model.image_encoder.head.weights[0].numpy() for model in (one, other)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01


@pytest.mark.slow
def test_a_run_opens_when_the_one_it_started_from_is_gone(tiny_pixel_run, other_recipe, scenes, tmp_path):
    first = shutil.copytree(tiny_pixel_run.path, tmp_path / "first")
    other = other_recipe.with_overrides(["image.pooling=null", "training.epochs=1"])
    recipe = with_backbone(other, scenes, str(first))
    # Its own pooling is taken over where the recipe names none.
    assert recipe.image.config.pooling == tiny_pixel_run.recipe.image.config.pooling
    run = train(recipe, scenes, tmp_path / "second")
    shutil.rmtree(first)
    same_weights(Run.open(run.path).model, run.model)
    with pytest.raises(DataError, match="must be a backbone or a run"):
        with_backbone(other_recipe, scenes, str(first))


def test_names_of_networks_are_no_directories(tiny_recipe, scenes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SmallConvNet").mkdir()
    assert with_backbone(tiny_recipe, scenes, "SmallConvNet").image.weights is None


def test_what_is_no_network_is_refused(tiny_run: Run, tiny_pixel_run: Run, tiny_recipe, scenes, tmp_path):
    with raises_argument("fine_tune"):
        with_backbone(tiny_recipe, scenes, str(tiny_run.path))
    with pytest.raises(DataError, match="must be a run directory"):
        run_backbone(tmp_path)
    recipe = with_backbone(tiny_recipe, scenes, str(tiny_pixel_run.path)).with_overrides(["image.size=64"])
    with raises_argument("image.weights"):
        start(recipe)


@pytest.mark.parametrize("name", ["kiros2014", "order-embedding", "vsepp"])
def test_a_named_backbone_sees_augmented_images_whatever_the_features_were(name, scenes) -> None:
    tower = with_backbone(recipes.get(name), scenes, "MobileNetV2").image
    # Statistics of random weights would be frozen at nonsense.
    assert (tower.augment, tower.frozen_statistics, tower.weights) == (True, True, "imagenet")
    tower = with_backbone(recipes.get(name), scenes, "SmallConvNet").image
    assert (tower.augment, tower.frozen_statistics, tower.weights) == (False, False, None)


def test_the_run_of_another_recipe_is_named_before_missing_features(tiny_pixel_run, tiny_recipe, scenes_copy, tmp_path):
    shutil.copytree(tiny_pixel_run.path, tmp_path / "run")
    shutil.rmtree(scenes_copy.path / "features")
    with pytest.raises(DataError, match="another recipe: image"):
        train(tiny_recipe, scenes_copy, tmp_path / "run")


@pytest.mark.parametrize(("name", "value"), [("resize", "short-side"), ("crops", 10)])
def test_features_of_other_pixels_than_those_of_training_are_refused(tiny_recipe, scenes, monkeypatch, name, value):
    config = BackboneConfig("SmallConvNet", **{name: value})
    store = SimpleNamespace(backbone=config, weights_path=scenes.path / "backbone.weights.h5")
    monkeypatch.setattr(FeatureStore, "find", lambda *_: store)
    with pytest.raises(InvalidArgumentError, match=f"`{name}` must be .*{value}.*`fine_tune`, SmallConvNet"):
        with_backbone(tiny_recipe, scenes)
    assert with_backbone(tiny_recipe, scenes, "SmallConvNet").image.weights is None
