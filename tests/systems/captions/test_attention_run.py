"""Captions that look at grid cells, from recipe to captions (exports: test_serve.py); what such a recipe refuses."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import Run, recipes
from vsemb.cli.__main__ import main
from vsemb.runs.fine_tune import with_backbone
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.multimodal_rnn import AttentiveRNN


@pytest.fixture(scope="module")
def recipe():
    settings = ["decoder.heads=2", "decoder.units=16", "image.size=32", "text.words.dim=16"]
    return recipes.get("multimodal-rnn", "attention").with_overrides(settings)


@pytest.mark.slow
def test_a_run_opens_with_what_it_learned(pixel_caption_run: Run, scenes) -> None:
    run, again = pixel_caption_run, Run.open(pixel_caption_run.path)
    assert isinstance(again.model, AttentiveRNN) and again.model.heads == 2
    split = scenes.split("val")
    inputs = {
        "image": run.images_of(scenes, split).gather(np.arange(3)),
        "text": np.array([[2, 3], [4, 0], [5, 6]], np.int32),
    }
    np.testing.assert_array_equal(again.model(inputs), run.model(inputs))


@pytest.mark.slow
def test_files_are_captioned(pixel_caption_run: Run, scenes, tmp_path, capsys) -> None:
    run, image = pixel_caption_run, tmp_path / "image.png"
    image.write_bytes(scenes.split("val").read_image(0))
    assert main(["caption", str(run.path), str(image), "--n-best", "2", "--beam", "2"]) == 0
    captioner = run.recipe.captioner(run, CaptionOptions(n_best=2, beam=2))
    wanted = captioner(run.image_input(tf.constant([image.read_bytes()]))[0])
    written = capsys.readouterr().out
    for caption in wanted.texts.numpy()[0]:
        assert caption.decode() in written


def test_low_precision(recipe) -> None:
    model = recipe.with_overrides(["decoder.cell=gru"]).build(30, {}, "mixed_bfloat16")
    assert model.attention.compute_dtype == "bfloat16"
    assert model.image_encoder.compute_output_shape((None, 32, 32, 3)) == (None, 4, 16)


def test_the_variant_of_attention_takes_another_backbone(scenes) -> None:
    variant = recipes.get("multimodal-rnn", "attention")
    same = with_backbone(variant, scenes, "SmallConvNet")
    assert same == variant and same.image.weights is None
    other = with_backbone(variant, scenes, "MobileNetV2").image
    assert other.backbone == "MobileNetV2" and other.pooling == "flat" and other.projection.keeps_size


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("image.pooling=mean", "image.pooling"),
        ("image.layer=block2_relu", "image.layer"),
        ("decoder.heads=3", "decoder.heads"),
        ("decoder.heads=-1", "decoder.heads"),
        ("image.projection=affine", "image.projection"),
        ("image=features", "image"),
    ],
)
def test_refused(change: str, field: str, recipe) -> None:
    with raises_argument(field):
        recipe.with_overrides([change])


def test_a_preset_without_a_map_is_refused(recipe, preset_path) -> None:
    recipe = recipe.with_overrides([f"image.backbone=hub:{preset_path('vit')}", "image.size=null"])
    with raises_argument("image.backbone"):
        recipe.build(30, {}, "float32")


def test_features_have_no_grid_cells(caption_recipe) -> None:
    with raises_argument("image"):
        caption_recipe.with_overrides(["decoder=attentive"])
