"""Networks of runs as the start of another training."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from vsemb.runs.build import backbone_config

from vsemb.errors import DataError, InvalidArgumentError
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.run import Run
from vsemb.runs.run_backbones import run_backbone, starting_backbone
from vsemb.systems.captions.caption_run import CaptionRun, build_caption_model, train_captions


def same_weights(one, other) -> None:
    for first, second in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(first, second)


def test_another_training_starts_from_the_network_of_a_run(tiny_pixel_run: Run, caption_recipe, scenes):
    trained = tiny_pixel_run.model.image_encoder.backbone
    recipe = with_backbone(caption_recipe, scenes, str(tiny_pixel_run.path))
    assert (recipe.image.backbone, recipe.image.size) == ("SmallConvNet", 32)
    assert not recipe.image.frozen_statistics and not recipe.image.augment
    recipe = recipe.with_overrides(["image.pooling=flat"])
    same_weights(build_caption_model(recipe, 30, None).image_encoder.backbone, trained)


def test_of_a_run_that_writes_captions_too(pixel_caption_run, tiny_recipe, scenes):
    recipe = with_backbone(tiny_recipe, scenes, str(pixel_caption_run.path))
    config = backbone_config(recipe)
    assert config is not None
    same_weights(starting_backbone(config, recipe), pixel_caption_run.model.image_encoder.backbone)


def test_all_else_is_drawn_from_the_seed_of_the_new_recipe(tiny_pixel_run: Run, caption_recipe, scenes):
    recipe = with_backbone(caption_recipe, scenes, str(tiny_pixel_run.path))
    one, other = (build_caption_model(recipe.with_overrides([f"training.seed={seed}"]), 30, None) for seed in (1, 2))
    same_weights(one.image_encoder.backbone, other.image_encoder.backbone)
    assert np.abs(one.words.table.numpy() - other.words.table.numpy()).max() > 0.01
    assert np.abs(one.output_map.kernel.numpy() - other.output_map.kernel.numpy()).max() > 0.01


def test_a_run_opens_when_the_one_it_started_from_is_gone(tiny_pixel_run, caption_recipe, scenes, tmp_path):
    first = shutil.copytree(tiny_pixel_run.path, tmp_path / "first")
    recipe = with_backbone(caption_recipe, scenes, str(first)).with_overrides(["training.epochs=1"])
    # Its own pooling is taken over where the recipe names none.
    assert recipe.image.pooling == backbone_config(tiny_pixel_run.recipe).pooling
    run = train_captions(recipe, scenes, tmp_path / "second")
    shutil.rmtree(first)
    same_weights(CaptionRun.open(run.path).model, run.model)
    with pytest.raises(DataError, match=f"no run at {first}"):
        with_backbone(caption_recipe, scenes, str(first))


def test_names_of_networks_are_no_directories(tiny_recipe, scenes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SmallConvNet").mkdir()
    assert with_backbone(tiny_recipe, scenes, "SmallConvNet").image.weights is None


def test_what_is_no_network_is_refused(tiny_run: Run, tiny_pixel_run: Run, tiny_recipe, scenes, tmp_path):
    with pytest.raises(InvalidArgumentError, match="fine-tune.*trained from pixels"):
        with_backbone(tiny_recipe, scenes, str(tiny_run.path))
    with pytest.raises(DataError, match="is no run"):
        run_backbone(tmp_path)
    recipe = with_backbone(tiny_recipe, scenes, str(tiny_pixel_run.path)).with_overrides(["image.size=64"])
    config = backbone_config(recipe)
    assert config is not None
    with pytest.raises(InvalidArgumentError, match="image.weights.*32 pixels.*64 pixels"):
        starting_backbone(config, recipe)
