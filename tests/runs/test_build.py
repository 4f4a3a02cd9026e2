"""From recipes of retrieval to models: every recipe and variant builds, compiles and runs a step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.conftest import FEATURE_DIM
from tests.raising import raises_argument
from tests.tiny import tiny
from vsemb import recipes, registry
from vsemb.data.features.compute import cache_features
from vsemb.errors import InvalidArgumentError
from vsemb.image.backbones import BackboneConfig
from vsemb.losses import InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.recipes import retrieval, towers
from vsemb.recipes.retrieval import Retrieval, RetrievalJob
from vsemb.recipes.towers import kept_backbone
from vsemb.text.tokenizers import Words

# tests/recipes/test_best.py trains the one that reads maps of an inner layer.
ALL = [
    (name, variant)
    for name, reference in registry.BASE.recipes.items()
    for variant, recipe in registry.load(reference).items()
    if recipe.image.kind != "top"
]
INFO = {"feature_dim": 4}


def built(recipe: Retrieval, scenes):
    """Batches and the compiled model of a recipe on the tiny features."""
    job = RetrievalJob(recipe, scenes)
    batches = job.batches()
    model = job.model(recipe, recipe.training.training_dtype)
    steps = batches.steps_per_epoch
    optimizer = recipe.optimizer.build(steps, recipe.training.epochs)
    # A step in graph mode is what all trainings are; tracing it for each recipe takes seconds.
    model.compile(optimizer=optimizer, loss=job.loss(steps), jit_compile=False, run_eagerly=True)
    return batches, model


def small(*overrides: str) -> Retrieval:
    """The recipe of defaults, with four units."""
    return Retrieval().with_overrides(["text.encoder.units=4", "embedding_dim=4", *overrides])


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_every_recipe_takes_a_step(name: str, variant: str, scenes) -> None:
    recipe = recipes.get(name, variant)
    # Its sizes cut down and nothing else.
    recipe = dataclasses.replace(tiny(recipe), training=recipe.training)
    batches, model = built(recipe, scenes)
    assert model.built and model.optimizer is not None
    before = model.get_weights()
    history = model.fit(batches.dataset().take(1), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    moved = [(a != b).any() for a, b in zip(model.get_weights(), before, strict=True)]
    # The image map at least, even where the schedule starts from zero and takes no step at first.
    assert any(moved) or recipe.optimizer.schedule.kind == "cosine"
    outputs = model(next(iter(batches.dataset())))
    dim = 16 + recipe.added_dim
    assert outputs["image"].shape == (8, dim) and outputs["text"].shape == (batches.batch_size, dim)


def test_weights_follow_from_the_seed(scenes, tiny_recipe) -> None:
    models = [
        built(tiny_recipe.with_overrides([f"training.seed={seed}"]), scenes)[1].get_weights() for seed in (1, 1, 2)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(models[0], models[1], strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(models[0], models[2], strict=True))


def test_mixed_precision(scenes, tiny_recipe) -> None:
    recipe = tiny_recipe.with_overrides(["training.precision=mixed_bfloat16"])
    batches, model = built(recipe, scenes)
    history = model.fit(batches.dataset().take(1), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert all(v.dtype == "float32" for v in model.trainable_variables)
    output = model(next(iter(batches.dataset())))["text"]
    assert output.dtype == "float32"


def test_vocabulary_limits(scenes) -> None:
    captions = scenes.split("train").captions
    assert len(Words().learn(captions)) > 20
    assert len(Words(vocabulary_size=5).learn(captions)) == 7


def test_losses() -> None:
    loss = small("loss.negatives=hardest", "loss.negatives.warmup_epochs=1.5").loss.build(10)
    assert isinstance(loss, PairwiseRanking)
    assert (loss.margin, loss.negatives, loss.warmup_steps) == (0.2, "hardest", 15)
    loss = small("loss=infonce", "loss.learn_temperature=false").loss.build(10)
    assert isinstance(loss, InfoNCE) and loss.temperature == 0.07
    # Learned: the scale of the model takes the place of the loss' temperature.
    learned = small("loss=infonce")
    loss = learned.loss.build(10)
    assert isinstance(loss, InfoNCE) and loss.temperature == 1
    model = learned.build(9, INFO, "float32")
    np.testing.assert_allclose(model.logit_scale(np.float32(1.0)), 1 / 0.07, rtol=1e-5)


def test_sigmoid_loss() -> None:
    fixed = small("loss=sigmoid", "loss.learn_temperature=false", "loss.bias=-3", "loss.reduction=sum")
    loss = fixed.loss.build(10)
    assert isinstance(loss, SigmoidLoss)
    assert (loss.temperature, loss.bias, loss.reduction) == (0.07, -3.0, "sum")
    learned = small("loss=sigmoid", "loss.temperature=0.1")
    loss = learned.loss.build(10)
    assert isinstance(loss, SigmoidLoss) and (loss.temperature, loss.bias) == (1.0, 0.0)
    model = learned.build(9, INFO, "float32")
    # 10 s - 10.
    np.testing.assert_allclose(model.logit_scale(np.float32([1.0, 0.0])), [0.0, -10.0], atol=1e-5)
    assert fixed.build(9, INFO, "float32").logit_scale is None


def test_chunks_blocks_and_l2() -> None:
    model = small("chunk_size=7", "loss.block_size=5", "l2=0.5").build(9, INFO, "float32")
    assert (model.chunk_size, model.block_size, model.l2) == (7, 5, 0.5)
    assert small().build(9, INFO, "float32").l2 == 0


def test_linear_encoders_need_words_of_the_embeddings_size() -> None:
    recipe = Retrieval().with_overrides(["text.encoder=linear", "text.encoder.words.dim=5"])
    with raises_argument("text.encoder.words.dim"):
        recipe.build(9, INFO, "float32")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.precision=float16", "training.precision"),
        ("optimizer=adm", "Did you mean 'adam'"),
        ("optimizer.schedule=cos", "cosine"),
        ("loss=rank", "Did you mean 'ranking'"),
        ("loss.label_smoothing=0.1", "loss.label_smoothing"),
        ("optimizer.schedule.warmup_epochs=1", "optimizer.schedule.warmup_epochs"),
        ("text.encoder.slots=3", "text.encoder.slots"),
    ],
)
def test_names_of_fields_are_in_the_messages(setting: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Retrieval().with_overrides([setting])


def test_fine_tuning_from_pixels(scenes, tiny_pixel_run) -> None:
    model = tiny_pixel_run.model
    assert isinstance(model, keras.Model)
    assert any("backbone" in v.path or "conv" in v.path for v in model.trainable_variables)
    split = scenes.split("val")
    images = tiny_pixel_run.images_of(scenes, split)
    pixels = images.finish(images.gather(np.arange(3)), None)
    assert pixels.shape == (3, 32, 32, 3)
    np.testing.assert_allclose(np.linalg.norm(model.encode_images(pixels), axis=1), 1, rtol=1e-5)
    assert kept_backbone(Path(tiny_pixel_run.path)) is None


def test_only_training_batches_see_mirror_images(scenes_copy):
    config = BackboneConfig("SmallConvNet", size=32)
    store = cache_features(scenes_copy, config, weights=None, mirror=True)
    image, split = recipes.get("vsepp").image, scenes_copy.split("train")
    assert store.dim != FEATURE_DIM
    rows, seeds = np.zeros(32, np.int64), np.array([[1, 2]])
    for training, views in ((False, 1), (True, 2)):
        images = image.images(split, store, training=training)
        assert images.spec.shape == (256,)
        assert len(np.unique(next(images.stream([rows], seeds)), axis=0)) == views


def test_weights_start_from_the_first_images(tiny_recipe, scenes, monkeypatch, tmp_path) -> None:
    for room in (retrieval, towers):
        monkeypatch.setattr(room, "MOST_IMAGES", 10)
    seen = []

    def apply(self, model, corpus, rows, features) -> None:
        seen.append((len(corpus.offsets) - 1, int(rows.max()), len(features)))

    monkeypatch.setattr(type(tiny_recipe.initialization), "apply", apply)
    tiny_recipe.prepare(scenes, tmp_path, {}).model(tiny_recipe, "float32")
    assert seen == [(scenes.split("train").caption_offsets[10], 9, 10)]
