"""A recipe's augmentation: what it is built from, what it refuses, and trainings with it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.runs.stop_at import stopped
from tests.training.test_resume import check_same_training
from vsemb.cli.__main__ import main
from vsemb.data.sources import PixelImages
from vsemb.errors import InvalidArgumentError, MissingExtraError
from vsemb.image import augmentation
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.train import train

AUGMENTED = [
    *("image.augmentation=randaugment", "image.augmentation.magnitude=9", "image.erasing=0.25"),
    "image.size=32",
]


def test_of_the_recipe(tiny_recipe, scenes) -> None:
    pytest.importorskip("official", reason="the extra models is not installed")
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet")
    recipe = recipe.with_overrides([*AUGMENTED, "image.augmentation.layers=3"])
    found = recipe.image.augmenter()
    assert found is not None
    assert (found.size, found.policy, found.magnitude, found.layers) == (32, "randaugment", 9, 3)
    assert found.erasing == 0.25
    assert recipe.with_overrides(["image.augmentation=null", "image.erasing=0"]).image.augmenter() is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["image.augmentation=randaug"], "`image.augmentation` must be .*; got 'randaug'.*Did you mean 'randaugment'"),
        (["image.augmentation.layers=3"], "image.augmentation.layers"),
        (["image.augmentation=autoaugment", "image.augmentation.magnitude=5"], "image.augmentation.magnitude"),
    ],
)
def test_refusals(settings, message, tiny_recipe, scenes) -> None:
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet")
    with pytest.raises(InvalidArgumentError, match=message):
        recipe.with_overrides(settings)


@pytest.mark.parametrize("setting", ["image.augmentation=autoaugment", "image.erasing=0.5"])
def test_cached_features_have_no_augmentation(setting, tiny_recipe) -> None:
    with pytest.raises(InvalidArgumentError, match=setting.partition("=")[0]):
        tiny_recipe.with_overrides([setting])


def test_without_the_extra(tiny_recipe, scenes, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "_stateless_module", augmentation._stateless_module.__wrapped__)
    for name in ("official", "official.vision.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides(AUGMENTED)
    with pytest.raises(MissingExtraError, match=r"pip install 'vsemb\[models\]'"):
        train(recipe, scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # What is trained is opened, evaluated and served without.
    assert recipe.image.images(scenes.split("val"), None).spec.shape == (32, 32, 3)


@pytest.mark.slow
def test_stopped_and_resumed(scenes, tiny_recipe, tmp_path, monkeypatch, capfd) -> None:
    pytest.importorskip("official", reason="the extra models is not installed")
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides([*AUGMENTED, "batches.size=16"])
    # No crops: images are then resized once, and what validation sees is what was stored.
    assert not recipe.image.augment
    run = train(recipe, scenes, tmp_path / "whole")
    with stopped(monkeypatch):
        train(recipe, scenes, tmp_path / "stopped", checkpoint_steps=2)
    capfd.readouterr()
    train(recipe, scenes, tmp_path / "stopped")
    assert "Resuming at epoch 2, step" in capfd.readouterr().err
    check_same_training(tmp_path / "whole", tmp_path / "stopped")
    # Neither what is validated on nor what is evaluated later is augmented.
    images = run.images_of(scenes, scenes.split("val"))
    plain = PixelImages(scenes.split("val"), 32)
    batch = images.gather(np.arange(3))
    np.testing.assert_array_equal(images.finish(batch, None), plain.finish(batch, None))


def test_from_the_command_line(scenes_path, tmp_path, capsys) -> None:
    command = ["train", "contrastive", "--data", str(scenes_path), "--out", str(tmp_path / "run")]
    assert main([*command, "--set", "image.augmentation=randaugment"]) == 1
    assert "image.augmentation" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
