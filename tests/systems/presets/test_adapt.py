"""Adapting a pretrained dual encoder: which weights move, and what a run contains afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.presets.texts import photographs
from vsemb import recipes
from vsemb.data.store import StoredDataset
from vsemb.runs.run import STATE, Run
from vsemb.runs.start import start
from vsemb.runs.train import train
from vsemb.systems.presets.adaptation import Adaptation, Full, LockedImages, Lora
from vsemb.systems.presets.api import interpolate
from vsemb.systems.presets.pretrained import pretrained_run

TEXTS = ["a red circle", "two dogs running"]


@pytest.fixture
def clip(preset_path, tmp_path: Path) -> Run:
    return pretrained_run(str(preset_path("clip")), tmp_path / "clip")


def step(model: keras.Model, adaptation: Adaptation) -> set[str]:
    """Returns the paths of the weights that a step of plain gradient descent on both embeddings moves."""
    adaptation.apply(model)
    before = {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}
    pixels = tf.constant(np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3)).astype(np.float32))
    ids = tf.constant([[20, 21, 22], [30, 31, 0]])
    with tf.GradientTape() as tape:
        embedded = model.encode_images(pixels), model.encode_texts(ids)
        loss = tf.reduce_sum(embedded[0] * embedded[1][::-1])
    for weight, gradient in zip(
        model.trainable_variables, tape.gradient(loss, [v.value for v in model.trainable_variables]), strict=True
    ):
        if gradient is not None:
            weight.assign(weight - 0.1 * tf.convert_to_tensor(gradient))
    return {
        weight.path
        for weight in model.weights
        if weight.path not in before or np.any(before[weight.path] != keras.ops.convert_to_numpy(weight))
    }


def test_full_moves_both_towers(clip: Run) -> None:
    moved = step(clip.model, Full())
    assert any("kernel" in path for path in moved) and len(moved) > 20


def test_locked_images_move_texts_alone(clip: Run) -> None:
    model = clip.model
    moved = step(model, LockedImages())
    assert moved and not moved & {weight.path for weight in model.image_encoder.weights}


def test_lora_moves_low_rank_matrices_alone_and_starts_at_the_preset(clip: Run) -> None:
    model, pixels = clip.model, np.full((1, 32, 32, 3), 90.0, np.float32)
    before = model.encode_images(pixels), model.encode_texts(clip.tokenizer(TEXTS))
    Lora(rank=2).apply(model)
    after = model.encode_images(pixels), model.encode_texts(clip.tokenizer(TEXTS))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    trained = [variable for variable in model.trainable_variables if "logit_scale" not in variable.path]
    # A layer of each tower has a query and a value, each with A and B; B alone moves in the first step.
    assert {variable.name for variable in trained} <= {"lora_kernel_a", "lora_kernel_b"} and len(trained) == 8
    assert all(2 in variable.shape for variable in trained)


def test_lora_of_more_layers(preset_path, tmp_path: Path) -> None:
    counts = {}
    for layers in ("query-value", "attention", "all"):
        run = pretrained_run(str(preset_path("siglip")), tmp_path / layers)
        Lora(layers=layers).apply(run.model)
        counts[layers] = sum(variable.name == "lora_kernel_a" for variable in run.model.trainable_variables)
    assert counts["query-value"] < counts["attention"] < counts["all"]


def adapted(name: str, variant: str, data: StoredDataset, out: Path, *settings: str) -> Run:
    values: dict[str, Any] = {"epochs": 1, "batch_size": 16, "chunk_size": 8}
    recipe, data = start(recipes.get("adapt", variant), data, values, fine_tune=name)
    return train(recipe.with_overrides(settings), data, out)


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "kind"), [("full", "siglip"), ("lora", "clip"), ("locked-images", "metaclip2")])
def test_a_training_starts_from_the_preset_and_opens_as_any_run(
    variant: str, kind: str, preset_path, scenes: StoredDataset, tmp_path: Path
) -> None:
    path = str(preset_path(kind))
    begun = pretrained_run(path, tmp_path / "begun")
    run = adapted(f"hub:{path}", variant, scenes, tmp_path / "run", "optimizer.learning_rate=0.001")
    again = Run.open(tmp_path / "run")
    assert [weight.shape for weight in again.model.weights] == [weight.shape for weight in begun.model.weights]
    ids = run.tokenizer(TEXTS)
    np.testing.assert_array_equal(again.model.encode_texts(ids), run.model.encode_texts(ids))
    pixels = again.image_input(tf.constant(photographs()[1]))[0]
    moved = {
        "texts": np.abs(again.model.encode_texts(ids) - begun.model.encode_texts(ids)).max(),
        "images": np.abs(again.model.encode_images(pixels) - begun.model.encode_images(pixels)).max(),
    }
    assert 0 < moved["texts"] < 1.0 and (moved["images"] > 0) == (variant != "locked-images")
    assert type(again.recipe.loss) is type(begun.recipe.loss)


@pytest.mark.slow
def test_interpolated_weights_lie_between(preset_path, scenes: StoredDataset, tmp_path: Path) -> None:
    """WiSE-FT, equation 1: (1 - share) of the old and share of the new weights; both ends are the two runs."""
    path = str(preset_path("clip"))
    first = pretrained_run(path, tmp_path / "first")
    second = adapted(f"hub:{path}", "full", scenes, tmp_path / "second", "optimizer.learning_rate=0.001")
    for share in (0.0, 0.25, 1.0):
        mixed = interpolate(tmp_path / "first", tmp_path / "second", tmp_path / f"mixed-{share}", share=share)
        rows = zip(first.model.weights, second.model.weights, mixed.model.weights, strict=True)
        for old, new, between in rows:
            old, new, between = map(keras.ops.convert_to_numpy, (old, new, between))
            # Sums of two float32 products.
            np.testing.assert_allclose(between, (1 - share) * old + share * new, rtol=1e-6, atol=1e-7)
    assert mixed.info["interpolated"]["share"] == 1.0 and "best_epoch" not in mixed.info


def test_refusals(preset_path, tmp_path: Path, clip: Run, scenes: StoredDataset) -> None:
    with raises_argument("fine_tune"):
        start(recipes.get("adapt"), scenes, {}, fine_tune="MobileNetV2")
    pretrained_run(str(preset_path("siglip")), tmp_path / "siglip")
    with raises_argument("start"):
        interpolate(tmp_path / "siglip", clip.path, tmp_path / "mixed")
    with raises_argument("share"):
        interpolate(clip.path, clip.path, tmp_path / "mixed", share=1.5)
    assert not (tmp_path / "mixed").exists()


@pytest.mark.slow
def test_low_rank_updates_continue_exactly(preset_path, scenes: StoredDataset, tmp_path: Path) -> None:
    """The stored state has the published matrices and the updates apart, unlike the selected weights."""
    name, fixed = f"hub:{preset_path('clip')}", ["optimizer.schedule=constant", "optimizer.learning_rate=0.01"]
    whole = adapted(name, "lora", scenes, tmp_path / "whole", *fixed, "training.epochs=2")
    adapted(name, "lora", scenes, tmp_path / "parts", *fixed)
    parts = adapted(name, "lora", scenes, tmp_path / "parts", *fixed, "training.epochs=2")
    with np.load(whole.path / STATE) as wanted, np.load(parts.path / STATE) as found:
        assert wanted.files == found.files
        for key in wanted.files:
            np.testing.assert_array_equal(found[key], wanted[key], err_msg=key)


def test_both_towers_are_of_one_preset(preset_path, scenes: StoredDataset, clip: Run) -> None:
    recipe, _ = start(recipes.get("adapt"), scenes, {}, fine_tune=f"hub:{preset_path('clip')}")
    with raises_argument("image.backbone"):
        recipe.with_overrides([f"image.backbone=hub:{preset_path('siglip')}"])
    with raises_argument("fine_tune"):
        start(recipes.get("adapt"), scenes, {}, fine_tune=clip.path)
