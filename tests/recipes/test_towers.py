"""Towers of recipes, and the features that they read."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.raising import raises_argument
from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.data.features.store import FeatureStore, unlike
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.image.backbones import BackboneConfig
from vsemb.recipes.towers import Features
from vsemb.runs.features import features, with_features
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.run import Run
from vsemb.runs.train import train

TOWER = Features(pooling="mean")


@pytest.fixture
def bare_scenes(scenes_copy: StoredDataset) -> StoredDataset:
    """A dataset without features."""
    shutil.rmtree(scenes_copy.path / "features")
    return scenes_copy


def make(data: StoredDataset, pooling: str, size: int = 32) -> str:
    """Makes features and returns their fingerprint."""
    return features(data, "SmallConvNet", "random", size=size, pooling=pooling).fingerprint


def obey(message: str) -> None:
    """Runs the command that a message ends with."""
    command = re.search("vsemb (features .*weights.h5)", message)
    assert command is not None and main(shlex.split(command[1])) == 0


def test_a_network_without_a_map_keeps_its_own_pooling(
    bare_scenes: StoredDataset, preset_path: Callable[[str], Path]
) -> None:
    recipe, name = recipes.get("kiros2014"), f"hub:{preset_path('clip')}"
    read = with_features(recipe, bare_scenes, name, "random").image.open(bare_scenes).backbone
    assert read.pooling == with_backbone(recipe, bare_scenes, name).image.config.pooling == "embedding"
    with raises_argument("pooling"):
        with_features(recipe.with_overrides(["image.pooling=max"]), bare_scenes, name, "random")


def test_the_recipe_chooses_among_features(bare_scenes: StoredDataset) -> None:
    made = {pooling: make(bare_scenes, pooling) for pooling in ("max", "mean")}
    for pooling, fingerprint in made.items():
        assert Features(pooling=pooling).open(bare_scenes).fingerprint == fingerprint


def test_other_features_than_the_recipe_names_are_said(
    bare_scenes: StoredDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    fingerprint = make(bare_scenes, "max")
    capsys.readouterr()
    assert TOWER.open(bare_scenes).fingerprint == fingerprint
    said = capsys.readouterr().err
    for quiet in (replace(TOWER, fingerprint=fingerprint), Features(), Features(pooling="max")):
        assert quiet.open(bare_scenes).fingerprint == fingerprint
    assert "vsemb features" not in capsys.readouterr().err
    obey(said)
    wanted, first = TOWER.open(bare_scenes), FeatureStore.find(bare_scenes, fingerprint)
    assert wanted.backbone is not None and wanted.backbone.pooling == "mean"
    assert wanted.manifest["weights_sha256"] == first.manifest["weights_sha256"]


@pytest.mark.parametrize(
    ("network", "wanted", "other"),
    [
        (BackboneConfig("MobileNetV2"), {"pooling": "mean", "size": 288}, {"pooling": "multilevel", "size": 224}),
        (BackboneConfig("MobileNetV2"), {"pooling": "multilevel", "size": None}, {}),
        (BackboneConfig("ResNet152"), {"pooling": "mean"}, {}),
        (BackboneConfig("VGG19", layer="fc7"), {"pooling": "max"}, {}),
        (BackboneConfig("ResNet101"), {"pooling": "multilevel"}, {}),
        (None, {"pooling": "mean"}, {}),
    ],
)
def test_unlike(network: BackboneConfig | None, wanted: dict[str, object], other: dict[str, object]) -> None:
    assert unlike(network, wanted) == other


def test_a_run_names_the_features_that_other_data_lack(
    bare_scenes: StoredDataset, tiny_recipe: Any, tmp_path: Path
) -> None:
    other = StoredDataset.open(shutil.copytree(bare_scenes.path, tmp_path / "other"))
    fingerprint = make(bare_scenes, "mean")
    run = Run.open(train(tiny_recipe.with_overrides(["image.pooling=mean"]), bare_scenes, tmp_path / "run"))
    make(other, "max")
    with pytest.raises(DataError) as raised:
        run.features_of(other)
    obey(str(raised.value))
    assert run.features_of(other).fingerprint == fingerprint
