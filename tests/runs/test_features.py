"""Features that a training computes by itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.raising import raises_argument
from tests.tiny import settings
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.data.features.store import FeatureStore
from vsemb.errors import InvalidArgumentError
from vsemb.runs import features
from vsemb.runs.features import with_features
from vsemb.runs.run import Run
from vsemb.runs.train import train


@pytest.mark.slow
def test_two_commands_make_a_run(scenes_copy, tmp_path, capsys):
    shutil.rmtree(scenes_copy.path / "features")
    small = [f"--set={each}" for each in [*settings(recipes.get("vsepp")), "training.epochs=1"]]
    out = tmp_path / "run"
    command = ["train", "vsepp", *small, "--data", str(scenes_copy.path), "--out", str(out)]
    assert main([*command, "--backbone", "SmallConvNet", "--weights", "random"]) == 0
    said = capsys.readouterr().err
    assert said.count("Computing the features of 72 images with SmallConvNet") == 1
    store = FeatureStore.find(scenes_copy)
    assert Run.open(out).info["features"] == store.fingerprint and store.views_count == 2
    # The same command finds the features, and the run.
    assert main([*command, "--backbone", "SmallConvNet", "--weights", "random", "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert "Computing" not in printed.err and "is finished already" in printed.err
    assert json.loads(printed.out)["features"] == store.fingerprint


@pytest.mark.slow
def test_the_features_that_are_named_are_read_among_others(scenes_copy, tiny_recipe, tmp_path):
    recipe = replace(tiny_recipe, training=replace(tiny_recipe.training, epochs=1))
    run = train(recipe, scenes_copy, tmp_path / "run", backbone="SmallConvNet", weights="random")
    store = features.features(scenes_copy, "SmallConvNet", "random", pooling=recipe.image.pooling)
    assert store.images_computed == 0 and len(FeatureStore.folders(scenes_copy)) == 2
    assert run.info["features"] == run.recipe.image.fingerprint == store.fingerprint


@pytest.mark.parametrize(("recipe", "reads"), [("dvsa", "reads regions"), ("log-bilinear", "reads no images")])
def test_a_recipe_that_reads_no_features_is_refused(scenes, recipe, reads):
    with pytest.raises(InvalidArgumentError, match=f"backbone.*{reads}"):
        with_features(recipes.get(recipe), scenes, "SmallConvNet", "random")


def test_a_backbone_is_either_trained_or_run_once(tmp_path, capsys):
    command = ["train", "vsepp", "--data", "none", "--out", str(tmp_path / "run"), "--fine-tune", "SmallConvNet"]
    assert main([*command, "--backbone", "SmallConvNet"]) == 1
    assert "`backbone`" in capsys.readouterr().err


def test_the_trained_layers_are_those_above_a_layer_of_the_backbone(scenes, monkeypatch):
    made = []
    store = SimpleNamespace(fingerprint="f")
    monkeypatch.setattr(features, "features", lambda *_, **options: made.append(options["layer"]) or store)
    best = recipes.get("best")
    for backbone, layer in (("SmallConvNet", "block2_relu"), ("MobileNetV2", "block_13_project_BN")):
        assert with_features(best, scenes, backbone, "random").image.layer == layer == made.pop()
    with raises_argument("backbone"):
        with_features(best, scenes, "VGG16")
    with raises_argument("image.layer"):
        with_features(best.with_overrides(["image.layer=fc6"]), scenes, "SmallConvNet")
