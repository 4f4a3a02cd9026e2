"""A recipe's policy of augmentation: what it is built from, what it refuses, and trainings with it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from vsemb.runs.distortion import distortion

from tests.systems.captions.test_caption_run import StopAt
from tests.training.test_resume import check_same_training
from vsemb.cli.__main__ import main
from vsemb.data.sources import PixelImages
from vsemb.errors import InvalidArgumentError, MissingExtraError
from vsemb.image import augmentation
from vsemb.runs import build
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.loop import fit_run
from vsemb.runs.train import train
from vsemb.systems.captions.caption_run import train_captions

POLICY = ["image.policy=randaugment", "image.policy_magnitude=9", "image.erasing=0.25", "image.size=32"]


def test_of_the_recipe(tiny_recipe, scenes) -> None:
    pytest.importorskip("official", reason="the extra models is not installed")
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides([*POLICY, "image.policy_layers=3"])
    found = distortion(recipe, build.backbone_config(recipe))
    assert found is not None
    assert (found.size, found.policy, found.magnitude, found.layers) == (32, "randaugment", 9, 3)
    assert found.erasing == 0.25
    plain = recipe.with_overrides(
        ["image.policy=null", "image.erasing=0", "image.policy_magnitude=10", "image.policy_layers=2"]
    )
    assert distortion(plain, build.backbone_config(plain)) is None


def test_an_older_recipe_has_none(tiny_recipe) -> None:
    plain = tiny_recipe.to_json()
    for name in ("policy", "policy_magnitude", "policy_layers", "erasing"):
        del plain["image"][name]
    assert type(tiny_recipe).from_json(plain) == tiny_recipe
    assert distortion(tiny_recipe, None) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["image.policy=randaug"], "image.policy='randaug'.*Did you mean 'randaugment'"),
        (["image.policy_layers=3"], "image.policy_layers=3.*2, the default, with image.policy=null"),
        (
            ["image.policy=autoaugment", "image.policy_magnitude=5"],
            'policy_magnitude=5.*10.0, the default, with image.policy="autoaugment"',
        ),
    ],
)
def test_refusals(settings, message, tiny_recipe, scenes, tmp_path) -> None:
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides(settings)
    with pytest.raises(InvalidArgumentError, match=message):
        train(recipe, scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["image.policy=autoaugment", "image.erasing=0.5"])
def test_cached_features_are_not_distorted(setting, scenes, tiny_recipe, caption_recipe, tmp_path) -> None:
    message = "with cached features. Train from pixels with --fine-tune"
    with pytest.raises(InvalidArgumentError, match=message):
        train(tiny_recipe.with_overrides([setting]), scenes, tmp_path / "run")
    with pytest.raises(InvalidArgumentError, match=message):
        train_captions(caption_recipe.with_overrides([setting]), scenes, tmp_path / "run")


def test_without_the_extra(tiny_recipe, scenes, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "_stateless_module", augmentation._stateless_module.__wrapped__)
    for name in ("official", "official.vision.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    recipe = with_backbone(tiny_recipe, scenes, "SmallConvNet").with_overrides(POLICY)
    with pytest.raises(MissingExtraError, match=r"pip install 'vsemb\[models\]'"):
        train(recipe, scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # What is trained is opened, evaluated and served without.
    assert build.build_images(recipe, scenes.split("val"), None).spec.shape == (32, 32, 3)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["retrieval", "captions"])
def test_stopped_and_resumed(task, scenes, tiny_recipe, caption_recipe, tmp_path, monkeypatch, capfd) -> None:
    pytest.importorskip("official", reason="the extra models is not installed")
    of, call = {"retrieval": (tiny_recipe, train), "captions": (caption_recipe, train_captions)}[task]
    recipe = with_backbone(of, scenes, "SmallConvNet").with_overrides([*POLICY, "batches.size=16"])
    # No crops: images are then resized once, and what validation sees is what was stored.
    assert not recipe.image.augment
    run = call(recipe, scenes, tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop = {"checks": [StopAt()]}
        patch.setattr(sys.modules[call.__module__], "fit_run", lambda *args, **given: fit_run(*args, **(given | stop)))
        with pytest.raises(KeyboardInterrupt):
            call(recipe, scenes, tmp_path / "stopped", checkpoint_steps=2)
    capfd.readouterr()
    call(recipe, scenes, tmp_path / "stopped")
    assert "going on at epoch 2, step" in capfd.readouterr().err
    check_same_training(tmp_path / "whole", tmp_path / "stopped")
    assert run.recipe.image.policy == "randaugment"
    # Neither what is validated on nor what is evaluated later is distorted.
    images = run.images_of(scenes, scenes.split("val"))
    plain = PixelImages(scenes.split("val"), 32)
    batch = images.gather(np.arange(3))
    np.testing.assert_array_equal(images.finish(batch, None), plain.finish(batch, None))


def test_from_the_command_line(scenes_path, tmp_path, capsys) -> None:
    command = ["train", "contrastive", "--data", str(scenes_path), "--out", str(tmp_path / "run")]
    assert main([*command, "--set", "image.policy=randaugment"]) == 1
    assert "Train from pixels with --fine-tune" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
