"""Captions that look at places: from the recipe to the SavedModel; what such a recipe refuses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from vsemb import recipes
from vsemb.cli.__main__ import main
from vsemb.errors import InvalidArgumentError
from vsemb.runs.fine_tune import with_backbone
from vsemb.systems.captions.attentive_rnn import AttentiveRNN
from vsemb.systems.captions.caption_run import CaptionRun, build_caption_model, train_captions

ATTENTION = ("image.pooling=flat", "caption.heads=2", "image.size=32", "training.epochs=1")


@pytest.fixture(scope="module")
def run(scenes, caption_recipe, tmp_path_factory: pytest.TempPathFactory) -> CaptionRun:
    recipe = with_backbone(caption_recipe, scenes, "SmallConvNet").with_overrides(ATTENTION)
    return train_captions(recipe, scenes, tmp_path_factory.mktemp("attention") / "run")


def test_a_run_opens_with_what_it_learned(run: CaptionRun, scenes) -> None:
    again = CaptionRun.open(run.path)
    assert isinstance(again.model, AttentiveRNN) and again.model.heads == 2
    split = scenes.split("val")
    inputs = {
        "image": run.images_of(scenes, split).gather(np.arange(3)),
        "text": np.array([[2, 3], [4, 0], [5, 6]], np.int32),
    }
    np.testing.assert_array_equal(again.model(inputs), run.model(inputs))


def test_it_writes_and_is_exported(run: CaptionRun, scenes, tmp_path, capsys) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(scenes.split("val").read_image(0))
    assert main(["caption", str(run.path), str(image), "--n-best", "2"]) == 0
    written = capsys.readouterr().out
    assert main(["export", str(run.path), str(tmp_path / "model"), "--n-best", "2"]) == 0
    loaded = tf.saved_model.load(str(tmp_path / "model" / "1"))
    found = loaded.signatures["caption"](image_bytes=tf.constant([image.read_bytes()]))
    for caption in found["captions"].numpy()[0]:
        assert caption.decode() in written


def test_every_cell(caption_recipe, scenes) -> None:
    for cell in ("rnn", "gru", "lstm"):
        recipe = with_backbone(caption_recipe, scenes, "SmallConvNet").with_overrides(
            [*ATTENTION, f"caption.decoder={cell}", "training.precision=mixed_bfloat16"]
        )
        model = build_caption_model(recipe, 30, None)
        assert model.attention.compute_dtype == "bfloat16"
        assert model.image_encoder.compute_output_shape((None, 32, 32, 3)) == (None, 4, recipe.caption.units)


def test_the_variant_of_attention(scenes, tmp_path) -> None:
    # Its sizes cut down and nothing else.
    recipe = recipes.get("multimodal-rnn", "attention")
    small = ["image.size=32", "caption.units=8", "text.word_dim=8", "training.epochs=1"]
    recipe = with_backbone(recipe, scenes, "SmallConvNet").with_overrides(small)
    assert recipe.image.pooling == "flat" and recipe.image.weights is None
    run = train_captions(recipe, scenes, tmp_path / "run")
    assert isinstance(run.model, AttentiveRNN) and run.info["best_epoch"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["image.pooling=mean"], "image.pooling.*'flat'.*image.pooling=flat"),
        (["caption.heads=3"], "heads.*a divisor of units"),
        (["caption.heads=-1"], "caption.heads"),
        (["image.init_scale=0.1"], "image.init_scale.*null with caption.heads"),
        (["image.use_bias=true"], "image.use_bias.*false with caption.heads"),
        (["image.standardize=true"], "image.standardize.*false with caption.heads"),
        (["image.regions=true"], "caption.heads.*0 with image.regions=true"),
    ],
)
def test_refused(changes: list[str], message: str, caption_recipe, scenes, tmp_path) -> None:
    recipe = with_backbone(caption_recipe, scenes, "SmallConvNet")
    with pytest.raises(InvalidArgumentError, match=message):
        train_captions(recipe.with_overrides([*ATTENTION, *changes]), scenes, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_preset_without_a_map_is_refused(caption_recipe, scenes, preset_path) -> None:
    recipe = with_backbone(caption_recipe, scenes, f"hub:{preset_path('vit')}")
    recipe = recipe.with_overrides(["image.pooling=flat", "caption.heads=2"])
    with pytest.raises(InvalidArgumentError, match="image.backbone.*gives a map"):
        build_caption_model(recipe, 30, None)


def test_features_have_no_places(caption_recipe, scenes, tmp_path) -> None:
    recipe = caption_recipe.with_overrides(["caption.heads=2"])
    with pytest.raises(InvalidArgumentError, match="caption.heads.*--fine-tune SmallConvNet"):
        train_captions(recipe, scenes, tmp_path / "run")
